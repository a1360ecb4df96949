"""`python -m waystation`, and the program `waystation`: the native one."""

from __future__ import annotations

import sys

from . import _core


def main() -> None:
    """Runs the program on the arguments of this process, and exits with its status."""
    sys.exit(_core.main(["waystation", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
