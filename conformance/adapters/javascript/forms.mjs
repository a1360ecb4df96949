// What may stand in metadata: canonical JSON (chapter 2), and forms, which refuse a value or return nothing; see 12.1.

/** What a reader raises when it says no; `code` is one of the registry's. */
export class Refusal extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}
export function refuse(code, message) {
  throw new Refusal(code, message);
}
export const bad = (message) => refuse("bad-member", message);
/** Strings compare as their UTF-8 bytes: JavaScript's `<` compares units of UTF-16, which puts U+1F98A below U+FFEE. */
export const compare = (a, b) => (a === b ? 0 : Buffer.compare(Buffer.from(a), Buffer.from(b)));

/** The canonical text of a value that JSON.parse gave. The strings of JSON.stringify are canonical, but for halves of pairs. */
function write(value, depth) {
  if (typeof value === "number" && !Number.isSafeInteger(value)) refuse("not-canonical", `${value} is no integer below 2^53`);
  if (typeof value === "string" && !value.isWellFormed()) refuse("not-canonical", "half a surrogate pair");
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  if (depth > 100) refuse("limit", "more than 100 levels");
  if (Array.isArray(value)) return `[${value.map((each) => write(each, depth + 1)).join()}]`;
  const names = Object.keys(value).sort();
  if (!names.every((name) => /^[ -~]*$/.test(name))) refuse("not-canonical", "a member's name beyond ASCII");
  return `{${names.map((name) => `${JSON.stringify(name)}:${write(value[name], depth + 1)}`).join()}}`;
}
/** The object that `bytes` hold. JSON.parse keeps the last of equal members, so the text written again is shorter. */
export function parseCanonical(bytes) {
  let text, value;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    value = JSON.parse(text);
  } catch (error) {
    refuse("not-canonical", error.message);
  }
  if (write(value, 1) !== text || text[0] !== "{") refuse("not-canonical", "not the canonical text of one object");
  return value;
}

export const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
export const anything = () => {};
export const when = (holds, message) => (value) => void (holds(value) || bad(message));
export const text = when((value) => typeof value === "string", "no string");
export const pattern = (expression) => when((value) => typeof value === "string" && expression.test(value), `not ${expression}`);
export const hex = (digits) => pattern(new RegExp(`^[0-9a-f]{${digits}}$`));
export const oneOf = (...words) => when((value) => words.includes(value), `none of ${words.join(", ")}`);
export const or = (nothing, form) => (value) => (value === nothing ? undefined : form(value));
export const also = (...forms) => (value) => forms.forEach((form) => form(value));

export function integer(least, most = Number.MAX_SAFE_INTEGER, code = "limit") {
  return (value) => {
    if (!Number.isSafeInteger(value) || value < least) bad(`no integer from ${least}`);
    if (value > most) refuse(code, `${value} is above ${most}`);
  };
}
export const count = integer(0);

/** Elements each by itself, then against those before it (`then`), then whether it is one too many. */
export function list(form, { least = 0, most = Infinity, code = "limit", then = anything } = {}) {
  return (value) => {
    if (!Array.isArray(value)) bad("no list");
    value.forEach((element, index) => {
      form(element);
      then(element, index, value);
      if (index >= most) refuse(code, `more than ${most} elements`);
    });
    if (value.length < least) bad(`fewer than ${least} elements`);
  };
}
export const strictly = (key, code = "bad-member") => (value, index, all) =>
  index > 0 && compare(key(all[index - 1]), key(value)) >= 0 && refuse(code, `${key(value)} is out of order, or twice`);
export function distinct(key) {
  let seen;
  return (value, index) => {
    if (index === 0) seen = new Set();
    if (seen.size === seen.add(key(value)).size) bad(`${key(value)} stands twice`);
  };
}
export function array(...forms) {
  return (value) => {
    if (!Array.isArray(value)) bad("no array");
    forms.forEach((form, index) => (index < value.length ? form(value[index]) : bad("an element is missing")));
    if (value.length > forms.length) bad("an element too many");
  };
}
/** An object with these members and no other; a `?` after the name of one says that it may be left out. */
export function object(members, then = anything) {
  const forms = new Map(Object.entries(members).map(([name, form]) => [name.replace("?", ""), form]));
  const required = Object.keys(members).filter((name) => !name.endsWith("?"));
  return (value) => {
    if (!isObject(value)) bad("no object");
    for (const name of [...new Set([...Object.keys(value), ...required])].sort()) {
      if (!forms.has(name)) bad(`unknown member ${name}`);
      if (!Object.hasOwn(value, name)) bad(`${name} is missing`);
      forms.get(name)(value[name]);
    }
    then(value);
  };
}

const FORBIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/;
export function name(value) {
  text(value);
  if (value === "" || Buffer.byteLength(value) > 1024 || FORBIDDEN.test(value)) refuse("bad-name", "a name that is none");
}

// role: [class of its shards, slot, owner]; 1 is required, 0 forbidden, null optional
export const ROLES = {
  param: ["model", 0, 0], buffer: ["model", 0, 0], master: ["state", 0, 0], optimizer: ["state", 1, 1],
  ema: ["state", 0, 1], quant: ["state", 1, 0], blob: ["state", 0, 0], extension: ["state", null, 0],
};
export const role = also(text, (value) => Object.hasOwn(ROLES, value) || refuse("unsupported-role", "a role of no registry"));
export function slotAndOwner(role, ...values) {
  const right = values.every((value, index) => (ROLES[role][index + 1] ?? Number(Boolean(value))) === Number(Boolean(value)));
  if (!right) refuse("bad-identity", "a slot or an owner against the table of roles");
}
/** A scope or coordinate: axes of the topology, in its order. Without a topology only its form is looked at. */
export function place(topology) {
  const axes = topology?.map(([axis]) => axis);
  return list(array(name, count), { then: ([axis, index], position, all) => {
    if (!axes) return;
    const at = axes.indexOf(axis);
    const before = position > 0 ? axes.indexOf(all[position - 1][0]) : -1;
    if (at <= before || index >= topology[at][1]) refuse("bad-identity", "no place of the topology");
  } });
}
export const identity = (topology) => also(array(name, role, name, or("", name), or("", name), place(topology)),
  ([, role, , slot, owner]) => slotAndOwner(role, slot, owner));

// The manifest: chapters 7 and 8
const feature = pattern(/^[a-z0-9./-]{1,64}$/);
const ascending = list(feature, { then: strictly(String) });
const features = object({ optional: ascending, required: ascending },
  (value) => value.required.some((each) => value.optional.includes(each)) && bad("a feature is optional and required"));
const hash = hex(64);
const path = also(text, (value) => {
  const right = (component) => /^[A-Za-z0-9._ -]{1,255}$/.test(component) && component !== "." && component !== "..";
  if (value.length > 1024 || !value.split("/").every(right)) refuse("bad-path", "a logical path that is none");
});
const table = object({ count: integer(1), crc32c: hex(8), offset: count });
const shard = object({ bytes: count, class: oneOf("model", "state"), crc_table: or(null, table) }, ({ bytes, crc_table }) =>
  crc_table && crc_table.offset + 4 * crc_table.count > bytes && bad("a table beyond its shard"));
const extension = object({ on_rewrite: oneOf("keep", "drop"), value: anything });
const extensions = also(when(isObject, "no object"), (value) => Object.keys(value).sort().forEach((name) => {
  feature(name);
  extension(value[name]);
}));
const attachment = object({ bytes: count, path, sha256: hash });
const part = object({ attachments: list(attachment, { most: 65536 }), bytes: integer(0, 2 ** 28), extensions,
  inc: hex(16), sha256: hash, shards: list(shard, { most: 65536 }) });
const pages = (first) => list(object({ bytes: integer(0, 2 ** 28), first, sha256: hash }));
const members = object({
  attempt: hex(16), block_bytes: oneOf(...Array.from({ length: 13 }, (_, power) => 4096 * 2 ** power)),
  contents: list(array(name, list(array(role, integer(1, 4194304)), { least: 1, then: strictly(([role]) => role) })),
    { then: strictly(([component]) => component) }),
  features, format: anything, kind: anything,
  omitted: list(object({ component: name, names: list(name, { least: 1, then: strictly(String) }),
    reason: oneOf("frozen", "base", "other") }), { then: strictly(({ component, reason }) => `${component}\0${reason}`) }),
  parent: or(null, hash), parts: list(part), records: pages(array(name, name, place())), run: name,
  step: integer(0, 999999999999), tensors: pages(identity()),
  topology: list(array(name, integer(1)), { most: 16, then: distinct(([axis]) => axis) }), version: anything,
  writers: integer(1, 65536),
});
/** What 12.1 looks at before all else of a manifest or page. */
export function header(value, kind) {
  if (value.format !== "waystation" || value.kind !== kind) refuse("bad-format", `not a file of kind ${kind}`);
  pattern(/^(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})$/)(value.version);
  if (!value.version.startsWith("1.")) refuse("unsupported-version", `version ${value.version}`);
}
export function manifest(value) {
  header(value, "manifest");
  features(value.features);
  if (value.features.required.length) refuse("unsupported-feature", value.features.required.join(", "));
  members(value);
  const { parts, records, tensors, topology, writers } = value; // rules about several members, in the order of the chapters
  tensors.forEach(({ first }) => place(topology)(first[5]));
  const data = parts.flatMap((each) => Object.keys(each.extensions));
  if (!data.every((feature) => value.features.optional.includes(feature))) bad("data of a feature that is not named");
  const paths = parts.flatMap(({ attachments }) => attachments.map((each) => each.path.toLowerCase()));
  const files = new Set(paths);
  const within = (path) => path.split("/").some((_, depth, all) => depth > 0 && files.has(all.slice(0, depth).join("/")));
  if (files.size !== paths.length || paths.some(within)) refuse("bad-path", "two logical paths collide");
  if (parts.length !== writers) bad("parts are not as many as writers");
  for (const pages of [tensors, records]) pages.forEach(strictly(({ first }) => JSON.stringify(first), "bad-order"));
  records.forEach(({ first }) => place(topology)(first[2]));
}
