#!/usr/bin/env python3
"""The adapter with checks of the reader switched off, to see whether any case notices.

    without.py RULE…              without every check of these rules
    without.py --mutation NAME…   with these faults, each a breach of a rule that is no single check
    without.py --rules            the rules whose checks can be switched off: those that the reader names when it refuses
    without.py --mutations        the faults, each with its rule

An exception that nobody foresaw is answered as an error of code `internal`: it stands for the crash that a reader without the
check may end in, and for no code of the registry, so that no case takes it for the refusal that it expects.
"""

import sys

import mutation


def main(words):
    named = words[:1] == ["--mutation"]
    words = words[named:]
    off = set() if named else set(words)
    mutation.install(off)
    import mutations
    known = sorted({*mutation.rules(), *mutations.COMPANIONS})
    if words == ["--rules"]:
        print("\n".join(known))
        return 0
    if words == ["--mutations"]:
        for name, (rule, made) in mutations.BY_NAME.items():
            print(f"{name}\t{rule}\t{made.__doc__.splitlines()[0]}")
        return 0
    unknown = [word for word in words if word not in (mutations.BY_NAME if named else known)]
    if unknown or not words:
        print(f"{__doc__}\nunknown: {' '.join(unknown) or 'nothing was named'}", file=sys.stderr)
        return 2
    import adapter
    wrong = [mutations.BY_NAME[word][1] for word in words] if named else \
        dict.fromkeys(mutations.COMPANIONS[word] for word in words if word in mutations.COMPANIONS)
    for change in wrong:
        change(off)
    adapter.main(f"python-{'with' if named else 'without'}-{'+'.join(words)}", guarded(adapter))
    return 0


def guarded(adapter):
    """The adapter's answers, with an error where it would end."""
    def respond(line, name):
        try:
            return adapter.respond(line, name)
        except Exception as error:
            return {"id": number_of(line), "error": {"code": "internal", "message": f"{type(error).__name__}: {error}"}}
    return respond


def number_of(line):
    import json
    return json.loads(line)["id"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
