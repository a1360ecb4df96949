"""`python -m waystation.interop`: the imports and exports of this package, for shells.

Exit status as the program's: 0 fine, 1 the source or checkpoint is refused, 2 the command line, 3 the environment
failed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import Any

from ..errors import Error
from . import ExportedModel, ImportedState, export_hf, import_dcp, import_hf, import_torch_file

_EXAMPLES = """\
examples:
  python -m waystation.interop import-dcp checkpoints/step-1000 --run runs/mine --step 1000 --trust-pickle
  python -m waystation.interop import-torch model.pt --out model-checkpoint --trust-pickle
  python -m waystation.interop import-hf Llama-3.2-1B --run runs/llama
  python -m waystation.interop export-hf runs/mine/step-000000001000-… --out hf-model --config config.json
"""
_TRUST = (
    "say that you know where the file comes from: nothing of it is run, and what is not on the list of what is read is "
    "refused, but whether its numbers are the right ones only its author can say"
)

_NO_CONFIG = (
    "note: there is no config.json, without which transformers loads nothing: export again with --config FILE "
    "(`model.config.to_json_file(FILE)` writes it), or attach it when saving"
)

# What the message or advice of an error says, and what it is called here.
_FLAGS = (
    ("trust_pickle=True", "--trust-pickle"),
    ("skip_unreadable=True", "--skip-unreadable"),
    ("verify_crc=False", "--no-verify-crc"),
    ("`model_key`", "--model-key"),
    ("import_torch_file reads", "import-torch reads"),
    ("import_hf read", "import-hf read"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; the exit status."""
    asked = _parser().parse_args(arguments)
    try:
        made = _run(asked)
    except Error as e:
        print(f"error: {_in_flags(str(e))}", file=sys.stderr)
        return {"io": 3, "usage": 2 if e.code == "bad-argument" and e.location.file is None else 1}.get(e.class_, 1)
    except KeyboardInterrupt:
        return 130
    if asked.json:
        print(json.dumps(dataclasses.asdict(made), sort_keys=True))
        return 0
    print(made.path)
    if isinstance(made, ExportedModel):
        if not made.config:
            print(_NO_CONFIG, file=sys.stderr)
    else:
        for what, lines in (("left out", made.skipped), ("note", made.notes)):
            for line in lines:
                print(f"{what}: {line}", file=sys.stderr)
    return 0


def _in_flags(text: str) -> str:
    """What an error says of parameters of Python, as this front has them."""
    for said, flag in _FLAGS:
        text = text.replace(said, flag)
    return text


def _run(asked: argparse.Namespace) -> ImportedState | ExportedModel:
    if asked.command == "export-hf":
        names = dict(pair.split("=", 1) for pair in asked.rename) or None
        return export_hf(
            asked.checkpoint,
            asked.out,
            max_shard_size=asked.max_shard_size,
            roles=asked.role or ("param", "buffer"),
            component=asked.component,
            names=names,
            config=asked.config,
        )
    where: dict[str, Any] = {"out": asked.out, "run": asked.run} | ({} if asked.step is None else {"step": asked.step})
    if asked.command == "import-hf":
        return import_hf(asked.source, **where, writers=asked.writers, attach=asked.attach)
    options = {
        "trust_pickle": asked.trust_pickle,
        "skip_unreadable": asked.skip_unreadable,
        "verify_crc": not asked.no_verify_crc,
        "buffers": asked.buffer,
        "name": asked.name,
    }
    if asked.command == "import-dcp":
        return import_dcp(asked.source, **where, **options, trust_links=asked.trust_links)
    return import_torch_file(asked.source, **where, **options, model_key=asked.model_key)


def _rename(text: str) -> str:
    if "=" not in text.strip("="):
        raise argparse.ArgumentTypeError(f"expected OLD=NEW, found {text!r}")
    return text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m waystation.interop",
        description=__doc__.partition("\n")[0] if __doc__ else None,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str, example: str) -> argparse.ArgumentParser:
        made = commands.add_parser(
            name,
            help=text,
            description=text,
            epilog=f"example:\n  python -m waystation.interop {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        made.add_argument(
            "--json", action="store_true", help="print one JSON object on standard output instead of text"
        )
        return made

    def imports(name: str, text: str, example: str) -> argparse.ArgumentParser:
        made = command(name, text, example)
        made.add_argument("source", metavar="SRC")
        place = made.add_mutually_exclusive_group(required=True)
        place.add_argument("--out", metavar="DIR", help="a directory to make: a checkpoint that stands alone")
        place.add_argument("--run", metavar="DIR", help="the run to add a checkpoint to; made if it is not there")
        made.add_argument(
            "--step", type=int, metavar="N", help="the step of the checkpoint (default: as a DCP state says, or 0)"
        )
        return made

    def pickles(name: str, text: str, example: str) -> argparse.ArgumentParser:
        made = imports(name, text, example)
        made.add_argument("--trust-pickle", action="store_true", help=_TRUST)
        made.add_argument(
            "--skip-unreadable",
            action="store_true",
            help="leave values without a typed form out, with a record of each",
        )
        made.add_argument("--no-verify-crc", action="store_true", help="do not compare tensors with their CRC-32")
        made.add_argument(
            "--buffer", action="append", default=[], metavar="NAME", help="a parameter that is a buffer; may repeat"
        )
        made.add_argument("--name", metavar="NAME", help="the run's name")
        return made

    dcp = pickles(
        "import-dcp",
        "A checkpoint of a directory of torch.distributed.checkpoint.",
        "import-dcp checkpoints/step-1000 --run runs/mine --step 1000 --trust-pickle",
    )
    dcp.add_argument("--trust-links", action="store_true", help="follow links within the directory")
    torch = pickles(
        "import-torch",
        "A checkpoint of a file of torch.save.",
        "import-torch model.pt --out model-checkpoint --trust-pickle",
    )
    torch.add_argument("--model-key", metavar="KEY", help="the mapping of the file that holds the parameters")
    hf = imports(
        "import-hf",
        "A checkpoint of a Hugging Face directory or a safetensors file.",
        "import-hf Llama-3.2-1B --run runs/llama",
    )
    hf.add_argument("--writers", type=int, default=1, metavar="M", help="how many writers to split the data over")
    hf.add_argument("--attach", action="append", default=[], metavar="FILE", help="a further file to carry; may repeat")
    export = command(
        "export-hf", "A Hugging Face directory of the weights of a checkpoint.", "export-hf ckpt --out hf-model"
    )
    export.add_argument("checkpoint", metavar="CKPT")
    export.add_argument("--out", required=True, metavar="DIR", help="the directory to make")
    export.add_argument("--max-shard-size", default="5GB", metavar="SIZE", help="such as 5GB or 500MiB (default 5GB)")
    export.add_argument(
        "--role", action="append", default=[], metavar="ROLE", help="default: param and buffer; may repeat"
    )
    export.add_argument("--component", default="main", metavar="NAME")
    export.add_argument("--config", metavar="FILE", help="becomes config.json, in place of an attachment of that name")
    export.add_argument("--rename", action="append", default=[], type=_rename, metavar="OLD=NEW", help="may repeat")
    return parser


if __name__ == "__main__":
    sys.exit(main())
