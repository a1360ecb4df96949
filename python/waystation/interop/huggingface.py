"""Hugging Face directories, both ways: weights as safetensors, with `config.json`, tokenizers and all that is in them.

The bytes are the native half's; here is what Python users want around them. Knows no weights and runs no code of a
model directory; `transformers` is only needed where a model of it is given or asked for.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .. import _core, dtypes
from ..errors import Error, Location, error, usage
from ..progress import Progress, reporting
from .intake import ImportedState, Target

if TYPE_CHECKING:
    from ..checkpoint import Checkpoint

Names = Mapping[str, str] | Callable[[str], str]
_INDEX: Final = "model.safetensors.index.json"
_MAKE_IT: Final = "Make the model yourself, give `cls`, or call load_into with a model that you made."
# What a configuration says beside what the model is: names of code and of kernels on the Hub, which loading would run.
_FETCHING: Final = frozenset(
    {
        "auto_map",
        "custom_pipelines",
        "attn_implementation",
        "_attn_implementation",
        "_attn_implementation_internal",
        "_attn_implementation_autoset",
        "experts_implementation",
        "_experts_implementation",
        "_experts_implementation_internal",
        "use_kernels",
        "kernel_config",
        "allow_all_kernels",
        "trust_remote_code",
    }
)
_UNITS: Final = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}


@dataclass(frozen=True)
class ExportedModel:
    """What an export made."""

    path: str
    files: int
    nbytes: int
    attachments: int
    tied: dict[str, str]
    """Names that share the data of another and stand in no file: a loader ties them as the configuration says."""
    config: bool
    """Whether there is a `config.json`; without it `transformers` does not know what the model is."""


def import_hf(
    source: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    run: str | os.PathLike[str] | None = None,
    step: int = 0,
    writers: int = 1,
    attach: Sequence[str | os.PathLike[str]] = (),
    progress: Progress = None,
) -> ImportedState:
    """Makes a checkpoint of a directory of Hugging Face, or of one safetensors file, and checks it on the way.

    Each tensor becomes a parameter of its name, every other file an attachment; what is left out (weights of another
    format, say) is in `skipped`. Pickles among the files are carried and never read. Raises as `waystation import`.
    """
    Target(out, run, None, step).check()
    with reporting(progress) as report:
        answer = _core.import_json(
            os.fspath(source),
            out=None if out is None else os.fspath(out),
            run_path=None if run is None else os.fspath(run),
            step=step,
            writers=writers,
            attach=[os.fspath(path) for path in attach],
            progress=report,
        )
    said = json.loads(answer)
    return ImportedState(
        said["path"], said["digest"], step, said["tensors"], said["bytes"], 0, tuple(said.get("skipped", ()))
    )


def export_hf(
    checkpoint: str | os.PathLike[str] | Checkpoint,
    out: str | os.PathLike[str],
    *,
    max_shard_size: int | str = "5GB",
    roles: Sequence[str] = ("param", "buffer"),
    component: str = "main",
    names: Names | None = None,
    config: Any = None,
    progress: Progress = None,
) -> ExportedModel:
    """Makes a directory that `transformers` and every other reader of safetensors load, of any checkpoint.

    Of a checkpoint of training only the model goes out: tensors of `roles` of one `component`, byte for byte, with the
    attachments. Nothing is ever filled in: a tensor that is not whole is an error before `out` is made, one that is
    damaged before it is done. `max_shard_size` is bytes, or a text such as `"5GB"`. `names` gives a tensor another name
    (a mapping, which may leave names out, or a function). `config` becomes `config.json`: a mapping, a configuration of
    `transformers`, or the path of a file; it takes the place of an attachment of that name.

    Raises `exists` where `out` is there, `bad-argument` where two tensors would have one name, and as `waystation
    export`.
    """
    path = checkpoint if isinstance(checkpoint, (str, os.PathLike)) else checkpoint.path
    text = None if config is None else _config_text(config)
    with reporting(progress) as report:
        answer = _core.export(
            os.fspath(path),
            os.fspath(out),
            roles=tuple(roles),
            component=component,
            max_shard_bytes=_bytes(max_shard_size),
            progress=report,
        )
    said = json.loads(answer)
    tied = dict(said["tied"])
    if names is not None:
        tied = _rename(os.fspath(out), names, tied)
    if text is not None:
        _replace(os.path.join(out, "config.json"), text.encode())
    return ExportedModel(said["path"], said["files"], said["bytes"], said["attachments"], tied,
                         text is not None or said["config"])


def load_into(
    model: Any,
    checkpoint: str | os.PathLike[str] | Checkpoint,
    *,
    component: str = "main",
    strict: bool = True,
    assign: bool = False,
    device: Any = None,
    prefix: str = "",
    progress: Progress = None,
) -> tuple[list[str], list[str]]:
    """Loads the weights of a checkpoint into a module of PyTorch, in one plan, verified; (missing, unexpected) names.

    `prefix` is what the checkpoint's names have before the module's. With `assign` the module takes the tensors that
    were read as they are (no copy, and their dtype); otherwise they are copied into its own, and a tensor of another
    dtype is refused, for copying would convert it. `strict` refuses names that only one side has, before anything is
    touched.
    """
    ckpt = _opened(checkpoint)
    view = ckpt if component == "main" else ckpt.component(component)
    own = model.state_dict(keep_vars=True)
    wanted = {name: prefix + name for name in own if prefix + name in view}
    missing = [name for name in own if name not in wanted]
    unexpected = sorted(name for name in view if name.startswith(prefix) and name[len(prefix) :] not in own)
    # What a module holds under two names need stand under one of them only.
    held = {id(own[name]) for name in wanted}
    missing = [name for name in missing if id(own[name]) not in held]
    if strict and (missing or unexpected):
        raise usage(
            f"the module has {_some(missing)} that the checkpoint lacks, the checkpoint {_some(unexpected)} that the "
            f"module lacks",
            remedy="strict=False goes on without them and returns both.",
        )
    _check_fit(own, wanted, view, assign)
    keys = {name: view[stored].key for name, stored in wanted.items()}
    read = ckpt.load(dict.fromkeys(keys.values()), framework="torch", device=device, progress=progress)
    state = {name: read[key] for name, key in keys.items()}
    model.load_state_dict(state, strict=False, assign=assign)
    return missing, unexpected


def from_checkpoint(checkpoint: str | os.PathLike[str] | Checkpoint, cls: Any = None, **arguments: Any) -> Any:
    """A model of `transformers` with the weights of a checkpoint that has its `config.json` among the attachments.

    `cls` is the class to make, by default the one that the configuration names as its architecture. `arguments` go to
    `cls.from_pretrained`. No code is run but that of `transformers` itself: neither code of a model directory, nor
    kernels or further weights of the Hub that a configuration names. How attention is computed is therefore not taken
    from the configuration but from `arguments` (`attn_implementation=…`).

    Raises `not-found` where there is no configuration, and `bad-argument` for one that is none of `transformers`, or is
    of a quantized model.
    """
    import huggingface_hub.errors as hub
    import transformers

    if arguments.pop("trust_remote_code", False):
        raise usage("trust_remote_code: code that comes with a model is never run here", remedy=_MAKE_IT)
    ckpt = _opened(checkpoint)
    if "config.json" not in ckpt.attachments:
        raise usage(
            "the checkpoint has no attachment config.json",
            "not-found",
            remedy="Save it with attachments={'config.json': …}, or make the model and call load_into.",
        )
    members = _config_members(ckpt.attachments["config.json"])
    kind = members.get("model_type")
    if type(kind) is not str or kind not in transformers.CONFIG_MAPPING:
        raise _bad_config(f"its model_type {_shown(kind)} is none that transformers {transformers.__version__} has")
    if cls is None:
        cls = _architecture(members.get("architectures"))
    try:
        config = transformers.CONFIG_MAPPING[kind](**members)
    except (TypeError, ValueError, AttributeError, KeyError, getattr(hub, "StrictDataclassError", TypeError)) as e:
        raise _bad_config(f"transformers makes nothing of it: {_shown(str(e))}") from e
    state = ckpt.load(framework="torch")
    return cls.from_pretrained(None, config=config, state_dict=state, trust_remote_code=False, **arguments)


def _config_members(data: bytes) -> dict[str, Any]:
    """The members of a configuration that say what the model is, without those that have something fetched and run."""
    try:
        members = json.loads(data)
    except (ValueError, RecursionError):
        raise _bad_config("it is no JSON") from None
    if not isinstance(members, dict):
        raise _bad_config("it is no JSON object")
    todo: list[Any] = [members]
    while todo:
        value = todo.pop()
        if isinstance(value, list):
            todo += value
        elif isinstance(value, dict):
            if value.get("quantization_config") is not None:
                raise _bad_config("it is of a quantized model, whose loader may fetch kernels from the Hub")
            for name in _FETCHING & value.keys():
                del value[name]
            if value.get("use_pretrained_backbone"):
                value["use_pretrained_backbone"] = False  # the checkpoint has its weights
            todo += value.values()
    return members


def _architecture(names: Any) -> Any:
    """The class of `transformers` that a configuration names."""
    import transformers

    if not names:
        return transformers.AutoModel
    if not isinstance(names, list) or type(names[0]) is not str:
        raise _bad_config(f"its architectures {_shown(names)} are no list of names")
    found = getattr(transformers, names[0], None) if names[0].isidentifier() else None
    if not isinstance(found, type) or not issubclass(found, transformers.PreTrainedModel):
        raise _bad_config(f"transformers {transformers.__version__} has no model {_shown(names[0])}")
    return found


def _bad_config(why: str) -> Error:
    return error("bad-argument", why, location=Location(file="config.json"), remedy=_MAKE_IT)


def _shown(value: Any) -> str:
    return ascii(value)[:200]


def _opened(checkpoint: str | os.PathLike[str] | Checkpoint) -> Checkpoint:
    from ..checkpoint import Checkpoint
    from ..checkpoint import open as open_checkpoint

    return checkpoint if isinstance(checkpoint, Checkpoint) else open_checkpoint(checkpoint)


def _check_fit(own: Mapping[str, Any], wanted: Mapping[str, str], view: Any, assign: bool) -> None:
    for name, stored in wanted.items():
        there, here = view[stored], own[name]
        if tuple(there.shape) != tuple(here.shape):
            raise usage(f"{name}: the checkpoint has shape {list(there.shape)}, the module {list(here.shape)}")
        if not assign and here.device.type == "meta":
            raise usage(f"{name} is on the meta device: assign=True gives the module tensors of its own")
        if not assign and there.dtype != dtypes.of_torch(here.dtype):
            raise usage(
                f"{name}: the checkpoint has {there.dtype}, the module {here.dtype}, and nothing is converted",
                remedy="Use assign=True, or make the module with that dtype.",
            )


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown or "nothing"


def _bytes(size: int | str) -> int:
    if type(size) is int and size > 0:
        return size
    text = str(size).strip().upper()
    digits = text.rstrip("BKMGTI ")
    unit = _UNITS.get(text[len(digits) :].strip() or "B")
    if not digits.isdecimal() or unit is None or int(digits) == 0:
        raise usage(f"expected a size such as 5GB or 500MiB, found {size!r}")
    return int(digits) * unit


def _config_text(config: Any) -> str:
    if isinstance(config, Mapping):
        return json.dumps(config, indent=2, sort_keys=True) + "\n"
    if isinstance(config, (str, os.PathLike)):
        try:
            with open(config, encoding="utf-8") as file:
                text = file.read()
            json.loads(text)
        except FileNotFoundError:
            raise error(
                "not-found", "there is no such configuration", location=Location(file=os.fspath(config))
            ) from None
        except ValueError as e:
            raise usage(f"{os.fspath(config)} is no JSON: {e}") from None
        return text
    if hasattr(config, "to_json_string"):
        return str(config.to_json_string())
    raise usage(f"expected a mapping, a configuration or a path, found {type(config).__qualname__}")


# Other names: the headers are written anew, the data behind them are copied as they lie.


def _rename(out: str, names: Names, tied: dict[str, str]) -> dict[str, str]:
    def new(name: str) -> str:
        found = names.get(name, name) if isinstance(names, Mapping) else names(name)
        if type(found) is not str or not found or found == "__metadata__":
            raise usage(f"the new name of {name!r} is {found!r}")
        return found

    files = sorted(name for name in os.listdir(out) if name.endswith(".safetensors"))
    headers = {name: _header(os.path.join(out, name)) for name in files}
    seen: dict[str, str] = {}
    for old in [*tied, *(name for header, _ in headers.values() for name in header if name != "__metadata__")]:
        if seen.setdefault(new(old), old) != old:
            raise usage(
                f"{seen[new(old)]!r} and {old!r} would both be {new(old)!r}",
                remedy=f"Give other names, and remove {out}.",
            )
    for name, (header, begin) in headers.items():
        said = {new(key): value for key, value in header.items() if key != "__metadata__"}
        metadata = header.get("__metadata__", {})
        said["__metadata__"] = {
            (new(key) if key in tied else key): (new(value) if key in tied else value)
            for key, value in metadata.items()
        }
        _rewrite(os.path.join(out, name), said, begin)
    index = os.path.join(out, _INDEX)
    if os.path.exists(index):
        with open(index, encoding="utf-8") as file:
            listed = json.load(file)
        listed["weight_map"] = {new(key): value for key, value in listed["weight_map"].items()}
        _replace(index, (json.dumps(listed, indent=2, sort_keys=True) + "\n").encode())
    return {new(alias): new(of) for alias, of in tied.items()}


def _header(path: str) -> tuple[dict[str, Any], int]:
    """The header of a file that was just exported, and where its data begin."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        return json.loads(file.read(length)), 8 + length


def _rewrite(path: str, header: dict[str, Any], begin: int) -> None:
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    beside = f"{path}.renamed"
    with open(path, "rb") as source, open(beside, "xb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        source.seek(begin)
        shutil.copyfileobj(source, file, 16 << 20)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def _replace(path: str, data: bytes) -> None:
    beside = f"{path}.new"
    with open(beside, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
