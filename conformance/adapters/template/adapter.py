#!/usr/bin/env python3
"""An adapter to start from: fill in `read`, then run `waystation conformance run --profile core -- python3 adapter.py`."""

import json
import sys


class Refused(Exception):
    """What your reader raises when it says no. `code` is one of the registry's, or your own word."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def hello(request):
    mine = {"name": "my reader", "version": "0", "language": "Python", "url": ""}
    return {"protocol": 1, "implementation": mine, "roles": ["reader"], "profiles": ["core"]}


def read(request):
    # Open the checkpoint at request["path"], read all of it, and say what is in it. An identity has all six members.
    raise Refused("not-implemented", "fill this in")
    return {"run": "", "step": 0, "tensors": [], "aliases": [], "attachments": [], "records": []}


OPERATIONS = {"hello": hello, "read": read}


def answer(request):
    operation = OPERATIONS.get(request["op"])
    if operation is None:
        return {"skip": {"reason": "not implemented"}}
    try:
        return {"ok": operation(request)}
    except Refused as refused:
        return {"error": {"code": refused.code, "message": str(refused)}}
    # Anything else that is raised ends the process: the suite calls that a crash, and so would your user.


for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps({"id": request["id"]} | answer(request)), flush=True)
