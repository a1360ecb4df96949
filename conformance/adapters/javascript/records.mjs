// Forms of records (chapter 9). What chapters 16 to 18 say of the values of other kinds than `value` is carried unread: who
// hands records on and restores nothing needs none of it.
import { also, array, bad, hex, identity, integer, isObject, list, name, object, pattern, place, refuse, text,
  when } from "./forms.mjs";

const key = JSON.stringify;
const whole = integer(-Number.MAX_SAFE_INTEGER);

function long(value) { // 9.1: only what a bare integer cannot be
  pattern(/^-?[1-9][0-9]*$/)(value);
  if (value.replace("-", "").length > 4300) refuse("limit", "an int of more than 4300 digits");
  if (Number.isSafeInteger(Number(value))) bad("an int that is small");
}
const mapKey = (value) => typeof value === "string" || (isObject(value) ? object({ int: long }) : whole)(value);
const map = also(list(array(mapKey, tree)), (pairs) =>
  new Set(pairs.map(([each]) => key(each))).size === pairs.length || bad("a key twice"));
const inline = when((value) => typeof value === "string" && /^([0-9a-f]{2})*$/.test(value) && value.length <= 16384, "no bytes");
const TREES = { int: long, f64: hex(16), f32: hex(8), bytes: inline, list: list(tree), tuple: list(tree), map,
  tensor: identityTree, type: array(text, tree) };
function identityTree(value) { // 9.1: whatever is wrong within a value tree but the length of an int breaks value.form
  try {
    identity()(value);
  } catch (error) {
    bad(error.message);
  }
}
function tree(value) {
  if (typeof value === "number") return whole(value);
  if (value === null || typeof value !== "object") return undefined;
  const [kind, ...others] = Array.isArray(value) ? [] : Object.keys(value);
  if (others.length || !Object.hasOwn(TREES, kind ?? "")) bad("no value tree");
  return TREES[kind](value[kind]);
}
/** A tree that is no object stands in one. */
const held = (value) => (Object.hasOwn(value, "tree") && !isObject(value.tree) ? object({ tree })(value) : tree(value));

export const recordKey = (value) => key([value.kind, value.name, value.coordinate ?? []]);
export function record(topology) {
  const coordinate = also(place(topology), (value) => value.length || bad("an empty coordinate is left out"));
  const form = object({ "coordinate?": coordinate, kind: name, name, value: when(isObject, "no object") });
  return (value) => {
    form(value);
    if (value.kind === "value") held(value.value);
    if (value.kind === "progress" && (value.name !== "main" || value.coordinate)) bad("progress of another name or place");
  };
}
