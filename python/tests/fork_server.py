"""Processes of their own for tests that kill them, forked from one that has imported what they need.

`processes(module)` is a `multiprocessing` context. What it forks from was started with nothing but that module, so a
child has no threads of the tests, and does not take seconds to import PyTorch.
"""

import multiprocessing
import os
import pathlib


def processes(*modules):
    """The context. One forks for all tests of a session, so whoever asks first decides; others import then."""
    tests = pathlib.Path(__file__).parent
    # Before Python 3.13 it does not look where its parent does.
    path = [str(tests), str(tests.parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, path)))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(modules))
    return context
