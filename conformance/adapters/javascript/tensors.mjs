// Entries of pages of tensors (chapters 4 and 5): their forms, chunks, exact cover, and boxes.
import { also, array, bad, count, hex, identity, integer, isObject, list, name, object, or, place, refuse, role, ROLES,
  slotAndOwner, strictly, text } from "./forms.mjs";

const BITS = { BOOL: 8, U8: 8, I8: 8, U16: 16, I16: 16, U32: 32, I32: 32, U64: 64, I64: 64, F16: 16, BF16: 16, F32: 32,
  F64: 64, F8_E4M3: 8, F8_E5M2: 8, F8_E4M3FNUZ: 8, F8_E5M2FNUZ: 8, F8_E3M4: 8, F8_E8M0: 8, F6_E2M3: 6, F6_E3M2: 6,
  F4_E2M1: 4, U4: 4, I4: 4, U2: 2, I2: 2, U1: 1, C64: 64, C128: 128 };
export const bitsOf = (tensor) => BITS[tensor.dtype];
/** The number of elements, as a BigInt: a product of safe integers need not be one. */
export const volume = (extent) => extent.reduce((product, each) => product * BigInt(each), 1n);
/** The bytes of a box, packed; a flat companion has one element for each block. */
export function bytesOf(tensor, extent) {
  const block = BigInt(tensor.block ?? 1);
  return Number((((volume(extent) + block - 1n) / block) * BigInt(bitsOf(tensor)) + 7n) / 8n);
}

const dtype = also(text, (value) => Object.hasOwn(BITS, value) || refuse("unsupported-dtype", "a dtype of no registry"));
const rank = { most: 16, code: "bad-shape" };
const path = list((value) => typeof value === "string" || count(value), { least: 1, most: 64, code: "bad-member" });
const native = list(array(name, path), { least: 1, then: strictly(([framework]) => framework) });
const six = [count, count, count, list(count), list(count), hex(8)];
const [shortChunk, longChunk] = [array(...six), array(...six, count)];
const chunk = (value) => (value?.length > 6 ? longChunk : shortChunk)(value);

export function entryForm({ topology }) {
  const component = also(name, (value) => value !== "main" || bad("component main is left out"));
  const scope = also(place(topology), (value) => value.length || bad("an empty scope is left out"));
  const label = (value) => (value === "" ? bad("what says nothing is left out") : name(value));
  const alias = object({ "component?": component, name, "native?": native, of: identity(topology), role });
  const tensor = object({ "axes?": list(or(null, count), rank), "block?": integer(1), chunks: list(chunk),
    "component?": component, dtype, name, "native?": native, "owner?": label, role, "scope?": scope, shape: list(count, rank),
    "slot?": label, "valid?": list(count, rank) });
  return (entry) => {
    if (!isObject(entry)) bad("no entry");
    const [first] = Object.keys(entry).sort();
    if (!["component", "name", "native", "of", "role"].includes(first)) return also(tensor, together)(entry);
    alias(entry);
    if ((entry.role !== "param" && entry.role !== "buffer") || entry.of[1] !== entry.role) refuse("bad-alias", "of another role");
  };
}
export const keyOf = ({ component = "main", role, name, slot = "", owner = "", scope = [], of }) =>
  [component, role, name, slot, owner, of ? of[5] : scope];

function together({ axes, block, dtype, owner, role, shape, slot, valid }) { // rules about several members
  slotAndOwner(role, slot, owner);
  if ([axes, valid].some((each) => each && each.length !== shape.length)) refuse("bad-shape", "another rank than the shape");
  const below = valid?.map((each, axis) => shape[axis] - each);
  if (below && (below.some((each) => each < 0) || !below.some(Boolean))) refuse("bad-shape", "valid is not below the shape");
  const follows = axes?.filter((each) => each !== null);
  if (follows && !(slot && follows.length && follows.every((each) => each < 16) && new Set(follows).size === follows.length))
    refuse("bad-identity", "axes that say nothing, or what is not so");
  if (volume(shape.filter(Boolean)) * BigInt(BITS[dtype]) > 8n * (2n ** 53n - 1n)) refuse("limit", "more than tensor-bits");
  if (role === "blob" && !(["U8", "U64"].includes(dtype) && shape.length === 1)) refuse("bad-identity", "no blob");
  if (block && role !== "quant") refuse("bad-identity", "a block of what is no companion");
}

/** Chunks one by one, then order, apart, split and cover. */
export function checkChunks(tensor, { block_bytes, parts }) {
  const { chunks, role, shape } = tensor;
  const need = (holds, message) => holds || refuse("bad-chunk", message);
  const runs = chunks.map(([writer, shard, offset, at, extent, , index]) => {
    need(at.length === shape.length && extent.length === shape.length, "another rank than the shape");
    need(!extent.includes(0), "no elements");
    need(shape.every((size, axis) => at[axis] + extent[axis] <= size), "beyond the shape");
    const file = parts[writer]?.shards[shard];
    const bytes = bytesOf(tensor, extent);
    need(file?.class === ROLES[role][0] && offset + bytes <= file.bytes, "not within such a shard");
    need((index !== undefined) === bytes > block_bytes, "a table index and no table, or the reverse");
    need(index === undefined || index + Math.ceil(bytes / block_bytes) <= (file.crc_table?.count ?? 0), "beyond the table");
    return [writer, shard, offset, offset + bytes];
  });
  const first = (a, b) => a.map((each, axis) => each - b[axis]).find(Boolean) ?? 0;
  if (chunks.some(([, , , at], i) => i && first(at, chunks[i - 1][3]) < 0)) refuse("bad-order", "chunks out of order");
  runs.sort(first).forEach(([writer, shard, offset], i) =>
    need(!i || writer !== runs[i - 1][0] || shard !== runs[i - 1][1] || offset >= runs[i - 1][3], "not apart"));
  const split = [...shape.keys()].filter((axis) => chunks.some(([, , , , extent]) => extent[axis] < shape[axis]));
  if (split.length > 8) refuse("limit", "split along more than 8 axes");
  const whole = volume(shape);
  const sum = chunks.reduce((total, [, , , , extent]) => total + volume(extent), 0n);
  if (sum < whole) refuse("cover-gap", "fewer elements than the shape");
  if (sum > whole || (whole && !cancels(shape, chunks, split))) refuse("cover-overlap", "an element in none or in two chunks");
}
/** 5.4: of the corners of all boxes, with their signs, those of the shape are left. */
function cancels(shape, chunks, axes) {
  const left = new Map();
  const add = (at, extent, sign) => {
    for (let sides = 0; sides < 2 ** axes.length; sides += 1) {
      const upper = axes.map((_, bit) => (sides >> bit) & 1);
      const key = axes.map((axis, bit) => at[axis] + upper[bit] * extent[axis]).join();
      const now = (left.get(key) ?? 0) + upper.reduce((parity, each) => (each ? -parity : parity), sign);
      if (now) left.set(key, now);
      else left.delete(key);
    }
  };
  add(shape.map(() => 0), shape, -1);
  for (const [, , , at, extent] of chunks) add(at, extent, 1);
  return left.size === 0;
}

/** The run [from, to) of the flattened shape that a box is; null when it is none. */
export function runOf(shape, at, extent) {
  const axis = extent.findIndex((each) => each > 1);
  if (axis >= 0 && extent.some((each, i) => i > axis && each !== shape[i])) return null;
  const from = at.reduce((index, each, i) => index * BigInt(shape[i]) + BigInt(each), 0n);
  return [from, from + volume(extent)];
}
/** Copies `length` elements of `bits` bits from element `from` of `source` to element `to` of `target`, which is zero there. */
export function copyRun(source, from, target, to, length, bits) {
  if ([from, to, length].every((each) => (each * bits) % 8 === 0))
    return void source.copy(target, (to * bits) / 8, (from * bits) / 8, ((from + length) * bits) / 8);
  for (let [read, put] = [from * bits, to * bits]; read < (from + length) * bits; read += 1, put += 1)
    target[Math.floor(put / 8)] |= ((source[Math.floor(read / 8)] >> (read % 8)) & 1) << (put % 8);
}
/** Calls `row(from, to, length)` for each row that the box [low, high) has in box `a` and in box `b`. */
export function eachRow(low, high, a, b, row) {
  const last = low.length - 1;
  const flat = ([at, extent], point) => point.reduce((index, each, axis) => index * extent[axis] + each - at[axis], 0);
  for (const point = [...low]; ; ) {
    row(flat(a, point), flat(b, point), last < 0 ? 1 : high[last] - low[last]);
    let axis = last - 1;
    for (; axis >= 0 && ++point[axis] === high[axis]; axis -= 1) point[axis] = low[axis];
    if (axis < 0) return;
  }
}
