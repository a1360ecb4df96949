// Forms of records (chapters 9 and 16 to 18), to depth O: what holds for a reader that hands values on and restores nothing.
import { also, anything, array, bad, count, distinct, hex, identity, integer, isObject, list, name, object, oneOf, or, pattern,
  place, refuse, strictly, text, when } from "./forms.mjs";

const key = JSON.stringify;
const whole = integer(-Number.MAX_SAFE_INTEGER);
const fixed = (form, length) => list(form, { least: length, most: length, code: "bad-member" });
const has = (kinds, kind) => Object.hasOwn(kinds, kind);
const pairs = (form, then) => list(array(name, form), { then });
const params = pairs(name, distinct(key));
const once = (pairs, what) => new Set(pairs.map(key)).size === pairs.length || bad(`${what} twice`);

function long(value) { // 9.1: only what a bare integer cannot be
  pattern(/^-?[1-9][0-9]*$/)(value);
  if (value.replace("-", "").length > 4300) refuse("limit", "an int of more than 4300 digits");
  if (Number.isSafeInteger(Number(value))) bad("an int that is small");
}
const mapKey = (value) => typeof value === "string" || (isObject(value) ? object({ int: long }) : whole)(value);
const map = also(list(array(mapKey, tree)), (pairs) => once(pairs.map(([each]) => each), "a key"));
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
  if (others.length || !has(TREES, kind ?? "")) bad("no value tree");
  return TREES[kind](value[kind]);
}
const only = (...kinds) => also(when((value) => isObject(value) && kinds.some((kind) => has(value, kind)), `no ${kinds}`), tree);
const float = only("f64", "f32");
const integerTree = (value) => (isObject(value) ? only("int") : whole)(value);
const namedList = pairs(tree, distinct(([name]) => name));
const tensor = object({ tensor: identity() });

const progress = object(Object.fromEntries(
  ["optimizer_step", "batch?", "epoch?", "iteration?", "samples?", "skipped?", "tokens?"].map((each) => [each, count])));
const group = object({ hyper: namedList, "implementation?": namedList, name, params });
const steps = list(object({ params: (value) => value === "all" || params(value), step: count, stored_as: name }));
const optimizer = object({ algorithm: name, groups: list(group, { then: distinct((each) => each.name) }),
  "masters?": object({ cast: oneOf("nearest-even", "stochastic", "other") }), steps }, (value) => {
  once(value.groups.flatMap((each) => each.params), "a parameter of groups");
  if (value.steps.some((each) => each.params === "all") && value.steps.length > 1) bad("all beside others");
  once(value.steps.flatMap((each) => (each.params === "all" ? [] : each.params)), "a parameter of steps");
});
const FOUR = ["base", "floor", "total", "warmup"];
const SCHEDULES = { constant: ["base"], "linear-warmup": ["base", "warmup"], "linear-warmup+linear": FOUR,
  "linear-warmup+cosine": FOUR };
const schedule = object({ algorithm: name, last_value: list(tree), parameters: tree,
  position: object({ unit: oneOf("optimizer_steps", "samples", "tokens", "epochs"), value: count }) }, (value) => {
  if (!has(SCHEDULES, value.algorithm)) return;
  list(float)(value.last_value);
  only("map")(value.parameters);
  const given = new Map(value.parameters.map);
  if (key([...given.keys()].sort()) !== key(SCHEDULES[value.algorithm])) bad("not the parameters of the schedule");
  for (const [parameter, each] of given) {
    if (parameter === "warmup" || parameter === "total") count(each);
    else if (each?.list) fixed(float, value.last_value.length)(each.list);
    else float(each);
  }
  if (given.get("warmup") > given.get("total")) bad("a warmup above the total");
});

// chapter 17: hex digits of an output (0: none) and of a cache
const OUTPUTS = { mt19937: 8, "pcg64-xsl-rr": 16, "pcg64-dxsm": 16, "pcg32-xsh-rr": 8, "philox4x64-10/numpy": 16,
  "philox4x32-10/torch-cuda": 8, "philox4x32-10/torch-key": 8, "philox4x32-10/torch-mps": 8, sfc64: 16,
  "threefry2x32-20/jax-partitionable": 8, "threefry2x32-20/jax-split": 8, "jax-rbg": 0, "jax-unsafe-rbg": 0, "chacha8/rand": 8,
  "chacha12/rand": 8, "chacha20/rand": 8, "xoshiro256++": 16 };
const CACHES = { "torch/normal-f64": 16, "torch/normal-f32": 8, "numpy/legacy-gauss-f64": 16, "python/gauss-next-f64": 16,
  "numpy/u32-half": 8 };
const cache = object({ bits: text, kind: name }, ({ bits, kind }) =>
  (has(CACHES, kind) ? hex(CACHES[kind]) : pattern(/^([0-9a-f]{2}){0,64}$/))(bits));
function state(value) {
  if (isObject(value)) return tensor(value);
  pattern(/^([0-9a-f]{2})*$/)(value);
  if (value.length > 16384) refuse("limit", "a state of more than 8192 bytes");
}
const rng = object({
  algorithm: name, caches: list(cache, { then: strictly((each) => each.kind) }), next_raw: list(text, { most: 64 }),
  "fork?": object({ coordinate: pairs(count, distinct(([axis]) => axis)), manifest: hex(64), step: count }),
  on_reshape: oneOf("require", "fork", "reinit"), "purpose?": name, "seed_rule?": object({ root: integerTree, rule: name }),
  state, "origin?": object({ "form?": name, framework: name, "initial_seed?": integerTree, "version?": name }),
}, ({ algorithm, next_raw }) => {
  const digits = has(OUTPUTS, algorithm) ? OUTPUTS[algorithm] : null;
  next_raw.forEach(digits === null ? pattern(/^[0-9a-f]{1,128}$/) : hex(digits));
  if (digits !== null && (digits ? next_raw.length < 4 : next_raw.length > 0)) bad("a canary of another length");
});

// chapter 18
const position = (holds, message) => holds || refuse("bad-position", message);
const least1 = integer(1);
const item = (value) => (Array.isArray(value) ? list(count, { least: 2 })(value) : count(value));
const source = { "name?": name, records: least1, sha256: hex(64) };
const numbers = (value) => (isObject(value) ? tensor : list(count, { most: 65536 }))(value);
const LIMITS = { "torch.randperm-cpu": 2n ** 64n, "grain.index_shuffle": 2n ** 32n };
/** An order of what has `below` members; null stands for a window, whose order has no `n`. */
function order(value, below) {
  if (!isObject(value)) bad("no order");
  name(value.algorithm);
  const n = below === null ? {} : { n: least1 };
  const seeded = { algorithm: name, ...n, seed: integerTree, seed_rule: oneOf("seed", "seed+epoch") };
  const rounds = when((each) => Number.isSafeInteger(each) && each >= 4 && each <= 1024 && each % 2 === 0, "no rounds");
  const forms = { identity: { algorithm: name, ...n }, explicit: { algorithm: name, ...n, ordinals: numbers },
    "torch.randperm-cpu": seeded, "grain.index_shuffle": { ...seeded, rounds } };
  if (has(forms, value.algorithm)) object(forms[value.algorithm])(value);
  else if (below !== null) least1(value.n);
  if (below === null && (value.algorithm === "explicit" || has(value, "n"))) bad("an order that no window has");
  if (has(LIMITS, value.algorithm)) {
    const seed = BigInt(value.seed.int ?? value.seed);
    if (seed < 0n || seed >= LIMITS[value.algorithm]) bad("a seed beyond its range");
  }
  position(value.algorithm !== "grain.index_shuffle" || !(value.n > 2 ** 32), "n is above 2^32");
  if (value.algorithm === "explicit" && Array.isArray(value.ordinals))
    position(value.ordinals.length === value.n && value.ordinals.every((each) => each < below), "ordinals beyond");
  return has(forms, value.algorithm);
}

const end = (...rules) => object({ rule: oneOf(...rules), "unit?": least1 }, ({ rule, unit }) =>
  (rule === "drop-last" || rule === "pad") === (unit !== undefined) || bad("a unit with the wrong rule"));
const piece = array(item, count, count);
const NODES = { // each returns whether chapter 18 defines its items
  "permuted-index"(value, form) {
    form({ epoch: count, epoch_end: end("drop-last", "pad", "wrap", "stop"), order: anything, position: count,
      source: object(source) });
    const { rule, unit } = value.epoch_end;
    const computed = order(value.order, value.source.records);
    const n = value.order.n;
    position(value.order.algorithm === "explicit" || n <= value.source.records, "n is above the records");
    const items = rule === "drop-last" ? n - (n % unit) : rule === "pad" ? n + ((unit - (n % unit)) % unit) : n;
    position(items >= 1 && value.position <= items, "no position of the epoch");
    return computed;
  },
  "sharded-lanes"(value, form) {
    form({ epoch: count, epoch_end: end("wrap", "stop"), lanes: list(array(count, count), { most: 65536 }), next_lane: count,
      order: anything, source: object({ ...source, shards: numbers }) });
    const { lanes, next_lane, source: { shards, records } } = value;
    const computed = order(value.order, isObject(value.order) ? value.order.n : 0);
    const n = value.order.n;
    position(next_lane < lanes.length, "no such lane");
    lanes.forEach(([at, record], lane) => position(at >= lane && (at - lane) % lanes.length === 0 && at < n + lanes.length &&
      (at < n || record === 0), "no place of the lane"));
    if (Array.isArray(shards)) position(shards.length === n && shards.reduce((a, b) => a + b, 0) === records, "not the shards");
    return computed;
  },
  opaque(value, form) {
    form({ fingerprint: only("map"), media_type: name, state: tree });
    if (!value.fingerprint.map.every(([key]) => typeof key === "string")) bad("a key that is no string");
    return false;
  },
  mixture(value, form, child) {
    form({ children: list(anything, { least: 1, most: 1024, code: "bad-member" }), selection: anything });
    const { children, selection } = value;
    const deficit = isObject(selection) && selection.algorithm === "deficit";
    if (deficit) object({ algorithm: name, end: oneOf("first", "all"), taken: fixed(count, children.length),
      weights: fixed(integer(1, 2 ** 32 - 1, "bad-member"), children.length) })(selection);
    else name(isObject(selection) ? selection.algorithm : bad("no selection"));
    return children.map(child).every(Boolean) && deficit;
  },
  "window-shuffle"(value, form, child) {
    const stored = has(value, "buffer");
    form(stored ? { buffer: list(item), child: anything, order: anything }
      : { anchor: anything, index: count, order: anything, replay: count, reverse: oneOf(true, false), window: least1 });
    const computed = [child(stored ? value.child : value.anchor), order(value.order, null)].every(Boolean);
    position(stored || value.replay <= value.window, "more replayed than a window has");
    return computed && !stored;
  },
  pack(value, form, child) {
    const cut = value.algorithm === "concat-then-split";
    form({ algorithm: name, child: anything, leftover: cut ? or(null, piece) : list(piece), length: least1,
      tail: oneOf("drop", "keep"), "tokenizer?": hex(64) });
    child(value.child);
    const pieces = cut ? [value.leftover ?? [0, 0, 1]] : value.leftover;
    position(pieces.every(([, , tokens]) => tokens >= 1), "an empty piece");
    return false;
  },
};
function node(value, depth, members) {
  if (!isObject(value) || !has(NODES, value.kind)) bad("no node");
  if (depth > 8) refuse("limit", "more than 8 nodes deep");
  const form = (own) => object({ ...own, ...members, kind: anything })(value);
  return NODES[value.kind](value, form, (child) => node(child, depth + 1, {}));
}
const next = object({ count: integer(0, 65536), first: list(item), sha256: hex(64) }, (value) =>
  value.first.length === Math.min(4, value.count) || bad("not the first items"));
function cursor(value, topology) {
  const axes = list(name, { then: distinct(String) });
  const partition = object({ axes, batch: least1, rule: oneOf("round-robin", "contiguous", "by-lane") });
  const computed = node(value, 1, { "augment?": oneOf("none", "per-record", "worker-stream"), "next?": next,
    "partition?": partition, ...(value.kind === "opaque" ? {} : { consumed: count }) });
  if (value.kind === "permuted-index") position(value.consumed >= value.position, "less consumed than of this epoch");
  if (computed && !value.next) bad("a computed cursor without canary");
  const { axes: along = [], rule } = value.partition ?? {};
  if (!along.every((axis) => topology.some(([each]) => each === axis))) bad("a partition along no axis of the topology");
  if (rule === "by-lane" && value.kind !== "sharded-lanes") bad("by-lane without lanes");
}

const KINDS = { progress, optimizer, ema: object({ "decay?": float, updates: count }), schedule, rng, cursor,
  scaler: object({ backoff: float, good_steps: count, growth: float, "hysteresis?": count, interval: count, scale: float,
    "skipped?": count }), uncaptured: object({ kind: name, reason: name }),
  value: (value) => (has(value, "tree") && !isObject(value.tree) ? object({ tree })(value) : tree(value)) };
export const recordKey = (value) => key([value.kind, value.name, value.coordinate ?? []]);
export function record(topology) {
  const coordinate = also(place(topology), (value) => value.length || bad("an empty coordinate is left out"));
  const form = object({ "coordinate?": coordinate, kind: name, name, value: when(isObject, "no object") });
  return (value) => {
    form(value);
    if (has(KINDS, value.kind)) KINDS[value.kind](value.value, topology);
    if (value.kind === "progress" && (value.name !== "main" || value.coordinate)) bad("progress of another name or place");
  };
}
