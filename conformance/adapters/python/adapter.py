#!/usr/bin/env python3
"""The adapter of this reader and writer: one request a line in, one answer a line out, as `conformance/protocol.md` says.

Knows the line protocol; what a checkpoint holds is the reader's and the writer's business. An exception that nobody foresaw is
not caught: the process ends, and the runner calls it a crash.
"""

import json
import sys

from waystation_reader import canonical, content
from waystation_reader.checkpoint import open_checkpoint
from waystation_reader.files import Directory
from waystation_reader.refusal import Refusal, io_refusal
from waystation_reader.registry import GRADES

VERSION = "1.0"
_URL = "conformance/adapters/python"
_PROFILES = ["core", "reshard", "resume", "writer", "durability", "extended"]


def main(name="python", answer=None):
    """Answers until the input ends."""
    answer = answer or respond
    for line in sys.stdin.buffer:
        said = answer(line, name)
        sys.stdout.write(json.dumps(said, separators=(",", ":")) + "\n")
        sys.stdout.flush()


def respond(line, name):
    """The answer to one line."""
    number = None
    try:
        request = _request(line)
        number = request["id"]
        operation = _OPERATIONS.get(request.get("op"))
        if operation is None:
            return {"id": number, "skip": {"reason": "an operation that this adapter does not know"}}
        return {"id": number, "ok": operation(request | {"adapter": name})}
    except Refusal as refusal:
        return {"id": number, "error": said_of(refusal)}
    except OSError as error:
        return {"id": number, "error": said_of(io_refusal(error, None))}
    except MemoryError:
        return {"id": number, "error": said_of(Refusal("limit", "open.memory", "more memory than this process may have"))}


def said_of(refusal):
    """A refusal without what it leaves open."""
    found = {"rule": refusal.rule} | refusal.finding()
    return {member: value for member, value in found.items() if value not in (None, "")}


def _request(line):
    try:
        request = json.loads(line)
        # Half a character is valid JSON and nothing that a name or a path can hold.
        json.dumps(request, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError):
        raise _wrong("a request is one JSON object in one line") from None
    if not isinstance(request, dict) or type(request.get("id")) is not int:
        raise _wrong("a request is an object with an integer `id`")
    return request


def _wrong(message):
    return Refusal("bad-argument", None, message)


def _member(request, member, kind):
    value = request.get(member)
    if not isinstance(value, kind):
        raise _wrong(f"expected {member!r} as {' or '.join(one.__name__ for one in kind) if isinstance(kind, tuple) else kind.__name__}")
    return value


def _path(request, member="path"):
    path = _member(request, member, str)
    if not path.startswith("/") or "\0" in path:
        raise _wrong(f"{member!r} is an absolute path")
    return path


# --- operations


def _hello(request):
    if request.get("protocol") != 1:
        raise _wrong("this adapter speaks protocol 1")
    implementation = {"name": request["adapter"], "version": VERSION, "language": "Python", "url": _URL}
    roles = ["reader", "validator", "writer", "committer"]
    return {"protocol": 1, "implementation": implementation, "roles": roles, "profiles": _PROFILES}


def _read(request):
    with Directory(_path(request)) as directory:
        return content.everything(open_checkpoint(directory))


def _slice(request):
    identity, start, extent = (_member(request, member, list) for member in ("tensor", "start", "extent"))
    with Directory(_path(request)) as directory:
        dtype, data = content.region(open_checkpoint(directory), identity, start, extent)
    return {"dtype": dtype, "extent": extent} | content.packed(data)


def _validate(request):
    from waystation_reader.verify import verify
    findings, _ = verify(_path(request))
    return {"findings": [said_of(refusal) for refusal in findings]}


def _latest(request):
    from waystation_reader.run import latest
    try:
        return {"name": latest(_path(request))[0]}
    except Refusal as refusal:
        if refusal.code != "no-checkpoint":
            raise
        return {"name": None}


def _state(request):
    from waystation_reader.restore import Loader
    topology = _pairs(request, "topology")
    place = _pairs(request, "coordinate")
    if topology is not None and len({axis for axis, _ in topology}) != len(topology):
        raise _wrong("an axis stands twice in the topology")
    demand, left_out, share = request.get("demand", "exact"), request.get("leave_out", []), request.get("share", False)
    if demand not in GRADES or not isinstance(left_out, list) or type(share) is not bool:
        raise _wrong("expected a grade as `demand`, a list as `leave_out`, true or false as `share`")
    sources, fingerprints = {}, {}
    for cursor, records, sha256 in _tuples(request, "sources", (str, int, str)):
        sources.setdefault(cursor, set()).add((records, sha256))
    for cursor, tree in _tuples(request, "fingerprints", (str, object)):
        fingerprints[cursor] = canonical.text(tree)
    with Directory(_path(request)) as directory:
        loader = Loader(open_checkpoint(directory), topology, place or [], demand, sources, fingerprints, left_out, share)
        answer = loader.load()
    # Where no topology is asked about nothing is restored, only graded.
    stream, cursor = (("state", "next_raw"), ("position", "next", "share")) if topology is not None else ((), ())
    return {
        "rng": _ascending(answer["rng"], ("grade", "algorithm", *stream)),
        "cursors": _ascending(answer["cursors"], ("grade", *cursor)),
        "uncaptured": _ascending(answer["uncaptured"], ("kind",)),
    }


def _pairs(request, member):
    """[[axis, number], …], or None where there is none."""
    if request.get(member) is None:
        return None
    return [list(pair) for pair in _tuples(request, member, (str, int))]


def _tuples(request, member, kinds):
    listed = request.get(member, [])
    if not isinstance(listed, list) or not all(
            isinstance(one, list) and len(one) == len(kinds) and all(
                isinstance(value, kind) and (kind is not int or type(value) is int and value >= 0) for value, kind in zip(one, kinds))
            for one in listed):
        raise _wrong(f"expected {member!r} as a list of lists of {len(kinds)}")
    return listed


def _ascending(listed, members):
    """Records by name, then coordinate, with what the protocol has of each."""
    listed = sorted(listed, key=lambda said: (said["name"], said.get("coordinate", [])))
    return [{member: said[member] for member in ("name", "coordinate", *members) if member in said} for said in listed]


def _write(request):
    from waystation_writer.save import save
    save(_path(request, "out"), _member(request, "recipe", dict))
    return {}


_OPERATIONS = {"hello": _hello, "read": _read, "slice": _slice, "validate": _validate, "latest": _latest, "state": _state,
               "write": _write}

if __name__ == "__main__":
    main()
