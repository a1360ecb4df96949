"""The command line: read, verify, slice, latest, state. One JSON object on standard output; its strings are escaped to ASCII."""

import argparse
import json
import re
import sys

from . import canonical, content
from .checkpoint import open_checkpoint
from .files import Directory
from .refusal import Refusal, io_refusal
from .registry import GRADES, exit_status
from .restore import Loader
from .run import latest
from .verify import verify

_SOURCE = re.compile("(.+)=([0-9]{1,16}):([0-9a-f]{64})")


def _read(arguments):
    with Directory(arguments.directory) as directory:
        return 0, content.everything(open_checkpoint(directory))


def _verify(arguments):
    findings, notes = verify(arguments.directory)
    status = max((3 if exit_status(refusal.code) == 3 else 1 for refusal in findings), default=0)
    return status, {"ok": not findings, "findings": [refusal.finding() for refusal in findings], "notes": notes}


def _slice(arguments):
    identity = _argument(arguments.identity, "the identity")
    start, extent = _argument(arguments.start, "a list of numbers"), _argument(arguments.extent, "a list of numbers")
    with Directory(arguments.directory) as directory:
        dtype, data = content.region(open_checkpoint(directory), identity, start, extent)
    if arguments.raw:
        sys.stdout.buffer.write(data)
        return 0, None
    return 0, {"dtype": dtype, "extent": extent} | content.packed(data)


def _argument(text, what):
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Refusal("bad-argument", "read.region", f"{what} is not JSON") from None


def _state(arguments):
    topology = _axes(arguments.topology, "the topology")
    place = _axes(arguments.place, "the place")
    sources, fingerprints = {}, {}
    for given in arguments.source:
        matched = _SOURCE.fullmatch(given)
        if not matched:
            raise Refusal("bad-argument", "cursor.source", "expected CURSOR=RECORDS:SHA256")
        sources.setdefault(matched[1], set()).add((int(matched[2]), matched[3]))
    for given in arguments.fingerprint:
        cursor, found, tree = given.partition("=")
        if not found:
            raise Refusal("bad-argument", "cursor.opaque", "expected CURSOR=TREE")
        fingerprints[cursor] = canonical.text(_argument(tree, "the fingerprint"))
    with Directory(arguments.directory) as directory:
        checkpoint = open_checkpoint(directory)
        loader = Loader(checkpoint, topology, place, arguments.demand, sources, fingerprints, arguments.leave_out,
                        arguments.share)
        return 0, loader.load()


def _axes(text, what):
    """`dp=3,tp=2` as a list of [axis, number]; nothing for an empty text, and None for none."""
    pairs = [pair.rpartition("=") for pair in text.split(",")] if text else []
    if any(not axis or not number.isascii() or not number.isdigit() or len(number) > 16 for axis, _, number in pairs):
        raise Refusal("bad-argument", "restore.demand", f"expected {what} as axis=number,axis=number")
    return None if text is None else [[axis, int(number)] for axis, _, number in pairs]


def _latest(arguments):
    name, manifest, skipped = latest(arguments.run)
    return 0, {"directory": name, "step": manifest["step"], "attempt": manifest["attempt"], "skipped": _skipped(skipped)}


def _skipped(skipped):
    return [{"directory": name} | refusal.finding() for name, refusal in skipped]


def _parser():
    parser = argparse.ArgumentParser(prog="waystation_reader")
    commands = parser.add_subparsers(required=True)
    for name, run, names in (
        ("read", _read, ("directory",)),
        ("verify", _verify, ("directory",)),
        ("slice", _slice, ("directory", "identity", "start", "extent")),
        ("latest", _latest, ("run",)),
        ("state", _state, ("directory",)),
    ):
        command = commands.add_parser(name)
        for argument in names:
            command.add_argument(argument)
        command.add_argument("--json", action="store_true", help="the default; accepted for likeness with other adapters")
        if name == "slice":
            command.add_argument("--raw", action="store_true", help="write the elements themselves")
        if name == "state":
            command.add_argument("--topology", help="axis=size,…; an empty one has no axes")
            command.add_argument("--place", default="", help="axis=index,… along all of them")
            command.add_argument("--demand", default="exact", choices=GRADES, help="the grade of streams and cursors")
            command.add_argument("--source", action="append", default=[], help="CURSOR=RECORDS:SHA256; may be repeated")
            command.add_argument("--fingerprint", action="append", default=[], help="CURSOR=TREE, the tree as JSON")
            command.add_argument("--leave-out", action="append", default=[], help="a stream or cursor that the caller does without")
            command.add_argument("--share", action="store_true", help="also the items of the next batch that are the place's")
        command.set_defaults(run_command=run)
    return parser


def main(words=None):
    arguments = _parser().parse_args(words)
    try:
        try:
            status, answer = arguments.run_command(arguments)
        except OSError as error:
            raise io_refusal(error, None) from None
        except MemoryError:
            raise Refusal("limit", "open.memory", "this process may not have the memory that it needs") from None
    except Refusal as refusal:
        status = 2 if refusal.code == "bad-argument" else exit_status(refusal.code)
        answer = {"error": refusal.finding()}
        if hasattr(refusal, "skipped"):
            answer["skipped"] = _skipped(refusal.skipped)
    if answer is not None:
        # All that is beyond ASCII is escaped by json; of what is left only DEL is a control character.
        print(json.dumps(answer).replace("\x7f", "\\u007f"))
    return status


if __name__ == "__main__":
    sys.exit(main())
