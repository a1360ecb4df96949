"""An adapter that knows no format: what it does with a case, the name of a file in the case says. Standard library only.

It is for tests of the runner: every way of answering and of not answering is here once.
"""

import json
import os
import signal
import sys
import time


def main():
    mode = sys.argv[1] if len(sys.argv) > 1 else ""
    for line in sys.stdin:
        request = json.loads(line)
        identifier = request["id"]
        if request["op"] == "hello":
            hello(identifier, mode)
            continue
        names = sorted(os.listdir(request["path"])) if "path" in request else ["write"]
        what = names[0] if names else "ok"
        globals()["do_" + what.replace("-", "_")](identifier, request)


def hello(identifier, mode):
    if mode == "mute":
        time.sleep(600)
    if mode == "refuse":
        print("Traceback:\n  no licence", file=sys.stderr, flush=True)
        sys.exit(3)
    profiles = ["core", "writer", "durability", "extended"]
    implementation = {"name": "behaving", "version": "1", "language": "Python", "url": ""}
    say(identifier, ok={"protocol": 2 if mode == "later" else 1, "implementation": implementation, "roles": ["reader"], "profiles": profiles})


def say(identifier, **answer):
    print(json.dumps({"id": identifier} | answer), flush=True)


def do_ok(identifier, request):
    say(identifier, ok={"step": 1, "tensors": [{"name": "w", "sha256": "00"}], "process": os.getpid()})


def do_right_code(identifier, request):
    say(identifier, error={"code": "crc-mismatch"})


def do_right_class(identifier, request):
    say(identifier, error={"code": "digest-mismatch"})


def do_other_code(identifier, request):
    say(identifier, error={"code": "it is broken"})


def do_internal(identifier, request):
    say(identifier, error={"code": "internal", "message": "IndexError"})


def do_internal_finding(identifier, request):
    say(identifier, ok={"findings": [{"code": "crc-mismatch"}, {"code": "internal"}]})


def do_findings(identifier, request):
    say(identifier, ok={"findings": [{"code": "io"}, {"code": "crc-mismatch"}]})


def do_no_findings(identifier, request):
    say(identifier, ok={"findings": []})


def do_skip(identifier, request):
    say(identifier, skip={"reason": "not yet", "feature": "x"})


def do_wrong_id(identifier, request):
    say(identifier + 7, ok={})


def do_garbage(identifier, request):
    print("Segmentation fault (core dumped)", flush=True)


def do_hang(identifier, request):
    time.sleep(600)


def do_child_hangs(identifier, request):
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)


def do_killed(identifier, request):
    print("about to fall", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)


def do_exit(identifier, request):
    sys.exit(4)


def do_half_a_line(identifier, request):
    sys.stdout.write('{"id":')
    sys.stdout.flush()
    sys.exit(0)


def do_twice(identifier, request):
    say(identifier, ok={})
    say(identifier, ok={})


def do_leaves(identifier, request):
    say(identifier, ok={})
    os._exit(0)


def do_falls_afterwards(identifier, request):
    say(identifier, ok={})
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGSEGV)


def do_leaves_a_child(identifier, request):
    if os.fork() == 0:
        time.sleep(600)
    say(identifier, ok={})
    os._exit(0)


def do_stray(identifier, request):
    say(identifier, ok={})
    sys.stdout.write("half a line")
    sys.stdout.flush()


def do_takes_and_leaves(identifier, request):
    taken = bytearray(b"x") * (200 << 20)
    say(identifier, ok={"taken": len(taken)})
    os._exit(0)


def do_adds_a_file(identifier, request):
    with open(os.path.join(request["path"], "more"), "w"):
        say(identifier, ok={})


def do_writes_over(identifier, request):
    time.sleep(0.05)
    path = os.path.join(request["path"], "writes-over")
    with open(path, "r+b") as file:
        file.write(b"x")
    os.truncate(path, 0)
    say(identifier, error={"code": "io"})


def do_deletes(identifier, request):
    os.remove(os.path.join(request["path"], "deletes"))
    say(identifier, ok={})


def do_long_line(identifier, request):
    try:
        while True:
            sys.stdout.write("x" * 65536)
    except BrokenPipeError:
        time.sleep(600)


def do_memory(identifier, request):
    taken = bytearray(b"x") * (40 << 20)
    say(identifier, error={"code": "crc-mismatch", "message": str(len(taken))})


def do_more_memory_than_there_is(identifier, request):
    try:
        taken = bytearray(b"x") * (700 << 20)
        say(identifier, ok={"taken": len(taken)})
    except MemoryError:
        say(identifier, error={"code": "limit"})


def do_keeps_memory(identifier, request):
    global kept
    kept = bytearray(b"x") * (12 << 20)
    say(identifier, ok={})


def do_takes_a_little(identifier, request):
    taken = bytearray(b"x") * (12 << 20)
    say(identifier, ok={"taken": len(taken)})


def do_child_processor(identifier, request):
    child = os.fork()
    if child == 0:
        while time.process_time() < 2:
            pass
        os._exit(0)
    os.waitpid(child, 0)
    say(identifier, ok={})


def do_processor(identifier, request):
    while True:
        pass


def do_write(identifier, request):
    """Copies what the recipe says is one, whole or in part, at a pace that a kill can meet."""
    recipe = request["recipe"]
    source = recipe["copy"]
    if recipe.get("link"):
        os.symlink(source, request["out"])
        say(identifier, ok={})
        return
    os.mkdir(request["out"])
    if "directory" in recipe:
        os.mkdir(os.path.join(request["out"], recipe["directory"]))
    late = []
    for name in sorted(os.listdir(source)):
        if name in recipe.get("without", []):
            continue
        with open(os.path.join(source, name), "rb") as file:
            data = file.read()
        target = os.path.join(request["out"], name)
        hollow = recipe.get("data_last") and name.startswith("model-")
        if hollow:
            late.append((target, data))
        with open(target, "wb") as file:
            file.write(bytes(len(data)) if hollow else data)
        time.sleep(recipe.get("pause", 0))
    if late:
        # Long enough that some kill meets it, however the machine is loaded.
        time.sleep(20 * recipe.get("pause", 0))
    for target, data in late:
        with open(target, "r+b") as file:
            file.write(data)
    say(identifier, ok={})


main()
