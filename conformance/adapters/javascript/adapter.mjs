#!/usr/bin/env node
// A reader for the profiles `core` and `reshard` behind the line protocol of the conformance suite. See README.md.
import { createHash } from "node:crypto";
import fs from "node:fs";
import { anything, compare, count, header, identity, list, manifest, object, parseCanonical, Refusal, refuse } from "./forms.mjs";
import { record, recordKey } from "./records.mjs";
import { bitsOf, bytesOf, checkChunks, copyRun, eachRow, entryForm, keyOf, runOf, volume } from "./tensors.mjs";

const BUDGET = 2 ** 29; // bytes: nothing larger is held in memory
const key = JSON.stringify; // of strings, safe integers and lists the text is canonical
const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");
const padded = (number) => String(number).padStart(5, "0");
const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  for (let bit = 0; bit < 8; bit += 1) byte = byte & 1 ? (byte >>> 1) ^ 0x82f63b78 : byte >>> 1;
  return byte;
});
function crc32c(bytes) {
  let crc = 0xffffffff;
  for (let i = 0; i < bytes.length; i += 1) crc = TABLE[(crc ^ bytes[i]) & 255] ^ (crc >>> 8);
  return ((crc ^ 0xffffffff) >>> 0).toString(16).padStart(8, "0");
}

/** A directory's files. Node has no openat; where there is /proc, names are resolved beneath the directory's handle anyhow. */
class Directory {
  constructor(path) {
    this.names = new Set(fs.readdirSync(path)); // compared byte for byte, also where the file system ignores case
    this.handle = fs.openSync(path, fs.constants.O_RDONLY | fs.constants.O_DIRECTORY);
    this.path = fs.existsSync(`/proc/self/fd/${this.handle}`) ? `/proc/self/fd/${this.handle}` : path;
  }
  close() {
    fs.closeSync(this.handle);
  }
  size(name, absent = "file-missing") {
    if (!this.names.has(name)) refuse(absent, `${name} is not there`);
    const found = fs.lstatSync(`${this.path}/${name}`);
    return found.isFile() ? found.size : refuse("not-regular", `${name} is no regular file`);
  }
  /** Calls `use` with a function that reads at an offset of the file, once the file has been seen to have `bytes` bytes. */
  open(name, bytes, use) {
    this.size(name);
    const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK } = fs.constants;
    const file = fs.openSync(`${this.path}/${name}`, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    try {
      const found = fs.fstatSync(file);
      if (!found.isFile()) refuse("not-regular", `${name} is no regular file`);
      if (found.size !== bytes) refuse("length-mismatch", `${name} has ${found.size} bytes and not ${bytes}`);
      return use((offset, length) => {
        if (length > BUDGET) refuse("limit", `${length} bytes are beyond the budget`);
        const out = Buffer.alloc(length);
        for (let done = 0, got; done < length; done += got) {
          got = fs.readSync(file, out, done, length - done, offset + done);
          if (got === 0) refuse("length-mismatch", `${name} ended`);
        }
        return out;
      });
    } finally {
      fs.closeSync(file);
    }
  }
  whole(name, bytes) {
    return this.open(name, bytes, (read) => read(0, bytes));
  }
}

class Checkpoint {
  pages = { tensors: [], records: [] };
  constructor(directory) { // 12.1, to depth C
    this.directory = directory;
    if (directory.names.has("deleted")) refuse("deleted", "there is a marker");
    if (directory.size("waystation.commit", "not-committed") !== 80) refuse("commit-grammar", "not 80 bytes");
    const commit = directory.whole("waystation.commit", 80).toString("latin1");
    if (!/^[0-9a-f]{64} {2}manifest\.json\n$/.test(commit)) refuse("commit-grammar", "not the line of a commit file");
    const bytes = directory.size("manifest.json");
    if (bytes > 2 ** 26) refuse("limit", "a manifest of more than 2^26 bytes");
    const text = directory.whole("manifest.json", bytes);
    if (sha256(text) !== commit.slice(0, 64)) refuse("digest-mismatch", "manifest.json");
    this.manifest = parseCanonical(text);
    manifest(this.manifest);
    const files = this.manifest.parts.flatMap(({ attachments, bytes, sha256, shards }, writer) => [
      [`part-${padded(writer)}-${sha256.slice(0, 16)}.json`, bytes],
      ...shards.map((each, at) => [this.shard(writer, at), each.bytes]),
      ...attachments.map((each, at) => [this.attachment(writer, at), each.bytes])]);
    for (const kind of ["tensors", "records"])
      files.push(...this.manifest[kind].map(({ bytes }, index) => [`${kind}-${padded(index)}.json`, bytes]));
    for (const [name, bytes] of files.sort(([a], [b]) => compare(a, b)))
      if (directory.size(name) !== bytes) refuse("length-mismatch", `${name} does not have ${bytes} bytes`);
  }
  shard(writer, position) {
    const { inc, shards } = this.manifest.parts[writer];
    return `${shards[position].class}-${padded(writer)}-${inc}-${padded(position)}.safetensors`;
  }
  attachment(writer, position) {
    return `attachment-${padded(writer)}-${this.manifest.parts[writer].inc}-${padded(position)}`;
  }

  /** The entries or records of a page, all of them checked. */
  page(kind, index) {
    return (this.pages[kind][index] ??= this.#page(kind, index));
  }
  #page(kind, index) {
    const { version, topology, [kind]: stated } = this.manifest;
    const [member, form, keyed] = kind === "records" ? ["records", record(topology), recordKey]
      : ["entries", entryForm(this.manifest), (entry) => key(keyOf(entry))];
    const bytes = this.directory.whole(`${kind}-${padded(index)}.json`, stated[index].bytes);
    if (sha256(bytes) !== stated[index].sha256) refuse("digest-mismatch", `${kind} ${index}`);
    const page = parseCanonical(bytes);
    header(page, kind);
    if (page.version !== version) refuse("bad-member", "a page of another version than the manifest");
    count(page.page);
    if (page.page !== index) refuse("bad-format", `page ${page.page} where ${index} should be`);
    object({ format: anything, kind: anything, page: anything, version: anything, [member]: anything })(page);
    const order = (holds) => holds || refuse("bad-order", `${kind} ${index}: an entry out of order`);
    const [first, next] = [index, index + 1].map((each) => stated[each] && key(stated[each].first));
    let last = null;
    list((each) => {
      form(each);
      const mine = keyed(each);
      order(last === null ? mine === first : compare(last, mine) < 0);
      last = mine;
      if (kind === "tensors" && each.chunks) checkChunks(each, this.manifest);
    })(page[member]);
    order(last !== null && (!next || compare(last, next) < 0));
    return page[member];
  }
  all(kind) {
    return this.manifest[kind].flatMap((_, index) => this.page(kind, index));
  }
  find(wanted) {
    const text = key(wanted);
    const index = this.manifest.tensors.findLastIndex(({ first }) => compare(key(first), text) <= 0);
    return index < 0 ? undefined : this.page("tensors", index).find((entry) => key(keyOf(entry)) === text);
  }
  target(alias) {
    const found = this.find(alias.of);
    return found?.chunks?.length ? found : refuse("bad-alias", "an alias of no tensor with elements");
  }

  /** A region of a tensor, packed as one chunk. */
  region(tensor, start, extent) {
    const { shape } = tensor;
    const high = start.map((each, axis) => each + extent[axis]);
    const rank = start.length === shape.length && extent.length === shape.length;
    if (!rank || high.some((each, axis) => each > shape[axis])) refuse("bad-region", "no region of the shape");
    if (extent.includes(0)) return Buffer.alloc(0);
    const met = tensor.chunks.filter(([, , , at, size]) =>
      at.every((each, axis) => each < high[axis] && each + size[axis] > start[axis]));
    const block = tensor.block && BigInt(tensor.block);
    const blocks = (at, size) => { // which blocks of a flat companion a box is: [from, to)
      const [from, to] = runOf(shape, at, size) ?? [1n, 0n];
      if (from > to || from % block || (to % block && to !== volume(shape))) refuse("block-boundary", "no run of whole blocks");
      return [from, to + block - 1n].map((each) => Number(each / block));
    };
    const wanted = block && blocks(start, extent);
    const runs = block && met.map(([, , , at, size]) => blocks(at, size));
    const bytes = bytesOf(tensor, extent);
    if (bytes > BUDGET) refuse("limit", `${bytes} bytes are beyond the budget`);
    const out = Buffer.alloc(bytes);
    const bits = bitsOf(tensor);
    met.forEach(([writer, shard, offset, at, size, crc], index) => {
      const name = this.shard(writer, shard);
      const stated = this.manifest.parts[writer].shards[shard].bytes;
      const data = this.directory.open(name, stated, (read) => read(offset, bytesOf(tensor, size)));
      if (crc32c(data) !== crc) refuse("crc-mismatch", `${name}, offset ${offset}`);
      const [low, top, mine, whole] = block ? [[wanted[0]], [wanted[1]], [[runs[index][0]], [0]], [[wanted[0]], [0]]]
        : [start, high, [at, size], [start, extent]];
      const end = block ? [runs[index][1]] : at.map((each, axis) => each + size[axis]);
      const both = [low.map((each, axis) => Math.max(each, mine[0][axis])), top.map((each, axis) => Math.min(each, end[axis]))];
      eachRow(...both, mine, whole, (from, to, length) => copyRun(data, from, out, to, length, bits));
    });
    return out;
  }
  attachments() {
    return this.manifest.parts.flatMap(({ attachments }, writer) => attachments.map(({ bytes, path, sha256 }, position) => {
      const hash = createHash("sha256");
      this.directory.open(this.attachment(writer, position), bytes, (read) => {
        for (let at = 0; at < bytes; at += 2 ** 20) hash.update(read(at, Math.min(2 ** 20, bytes - at)));
      });
      return hash.digest("hex") === sha256 ? { path, bytes, sha256 } : refuse("digest-mismatch", path);
    })).sort((a, b) => compare(a.path, b.path));
  }
}

// The line protocol

const MEMBERS = ["component", "role", "name", "slot", "owner", "scope"];
const named = (entry) => Object.fromEntries(keyOf(entry).map((value, index) => [MEMBERS[index], value]));
function digest(bytes) {
  return { bytes: bytes.length, sha256: sha256(bytes), ...(bytes.length <= 64 ? { hex: bytes.toString("hex") } : {}) };
}
function opened(path, use) {
  if (typeof path !== "string" || !path.startsWith("/") || path.includes("\0")) refuse("bad-argument", "no absolute path");
  const directory = new Directory(path);
  try {
    return use(new Checkpoint(directory));
  } finally {
    directory.close();
  }
}
function whole(checkpoint, tensor) {
  const what = { ...named(tensor), dtype: tensor.dtype, shape: tensor.shape };
  try {
    return { ...what, ...digest(checkpoint.region(tensor, tensor.shape.map(() => 0), tensor.shape)) };
  } catch (error) {
    if (error.code !== "block-boundary") throw error;
    return { ...what, bytes: null, sha256: null, refused: "block-boundary" };
  }
}
const OPERATIONS = {
  hello: () => ({ protocol: 1, implementation: { name: "waystation-js", version: "1", language: "JavaScript", url: "" },
    roles: ["reader"], profiles: ["core", "reshard"] }),
  read: ({ path }) => opened(path, (checkpoint) => {
    const [entries, records] = [checkpoint.all("tensors"), checkpoint.all("records")];
    const tensors = entries.filter((entry) => !entry.of).map((tensor) => whole(checkpoint, tensor));
    const aliases = entries.filter((entry) => entry.of && checkpoint.target(entry));
    const { run, step } = checkpoint.manifest;
    return { run, step, tensors, aliases: aliases.map((alias) => ({ ...named(alias), of: alias.of })),
      attachments: checkpoint.attachments(), records };
  }),
  slice: ({ path, tensor, start, extent }) => {
    try {
      identity()(tensor);
      [start, extent].forEach(list(count));
    } catch (error) {
      refuse("bad-argument", error.message);
    }
    return opened(path, (checkpoint) => {
      const entry = checkpoint.find(tensor) ?? refuse("not-found", "no such tensor");
      const target = entry.of ? checkpoint.target(entry) : entry;
      return { dtype: target.dtype, extent, ...digest(checkpoint.region(target, start, extent)) };
    });
  },
};

const SYSTEM = { ENOENT: "not-found", ENOTDIR: "not-found", EACCES: "io-denied", EPERM: "io-denied", ELOOP: "not-regular" };
function answer(line) {
  let id = null;
  try {
    const request = JSON.parse(line);
    if (Number.isSafeInteger(request?.id)) id = request.id;
    if (id === null || typeof request.op !== "string") refuse("bad-argument", "no request");
    if (!Object.hasOwn(OPERATIONS, request.op)) return { id, skip: { reason: "no such operation here" } };
    return { id, ok: OPERATIONS[request.op](request) };
  } catch (error) {
    const system = SYSTEM[error.code] ?? (error.syscall ? "io" : error instanceof SyntaxError ? "bad-argument" : "internal");
    return { id, error: { code: error instanceof Refusal ? error.code : system, message: error.message } };
  }
}

const LONGEST = 2 ** 22; // bytes of a request; what is longer is answered as no request
let [pieces, length] = [[], 0];
function respond() {
  const line = length > LONGEST ? "" : Buffer.concat(pieces).toString();
  [pieces, length] = [[], 0];
  process.stdout.write(`${JSON.stringify(answer(line))}\n`);
}
process.stdin.on("data", (bytes) => {
  for (let from = 0, end; end !== -1; from = end + 1) {
    end = bytes.indexOf(10, from);
    const piece = bytes.subarray(from, end < 0 ? bytes.length : end);
    length += piece.length;
    if (length <= LONGEST) pieces.push(piece);
    if (end >= 0) respond();
  }
});
process.stdin.on("end", () => length && respond());
