"""The random streams that a PyTorch trainer draws from, as records of kind `rng`.

It knows which generators there are, how each gives and takes its state, and along which axes of a job it varies.
Engines and their canonical states are the native half's business; when streams are put back, among everything else that
is, is `state`'s.

A stream that ranks draw from on their own has a record for each of them; by default every stream of a job of several
ranks is one, since states that "ought to be equal" on all ranks often are not. What the ranks really share is said to
be `Shared` and compared before it is recorded once.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, Union

import numpy
import torch

from .. import _core
from ..errors import error, usage
from ..records import Record
from .group import Place

__all__ = ["Off", "PerRank", "Shared", "Streams"]

OnReshape: TypeAlias = Literal["require", "fork", "reinit"]
Generator: TypeAlias = Union[torch.Generator, numpy.random.Generator, numpy.random.RandomState, random.Random]

BUILT_IN = ("python", "numpy", "torch", "cuda", "xpu", "mps")
"""Streams that exist without being named: the module `random`, NumPy's global one, PyTorch's default generators."""

_FORMS = {"cpu": "torch-cpu", "cuda": "torch-cuda", "xpu": "torch-cuda", "mps": "torch-mps"}
"""The native form of a `torch.Generator`, by the type of its device."""


@dataclass(frozen=True, slots=True)
class PerRank:
    """Every place along `axes` (None: along all axes of the job) draws from a stream of its own.

    `on_reshape` says what becomes of it in a job in which such an axis has another size: `fork` derives a new stream
    from the checkpoint and the new place, the same whenever it is resumed so, `require` refuses, `reinit` leaves it
    alone.
    """

    on_reshape: OnReshape = "fork"
    axes: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Shared:
    """All ranks hold the same state; that they do is compared at each save. Resumes on any number of ranks."""

    on_reshape: OnReshape = "require"


@dataclass(frozen=True, slots=True)
class Off:
    """Training draws from it, and it is not saved: recorded as `uncaptured`, so that no resume takes it for exact."""

    reason: str = "switched-off"


Scope: TypeAlias = Union[PerRank, Shared, Off]


# Each kind of generator: its name in `rng convert`, its state as that wants it, and back.


@dataclass(frozen=True, slots=True)
class _Source:
    """A live generator. `read` gives its state in the native form `form`, `write` puts one back."""

    form: str
    framework: str
    read: Callable[[], bytes]
    write: Callable[[bytes], None]


def _python(live: Any) -> _Source:
    """`live` is the module `random` or a `random.Random`."""

    def read() -> bytes:
        return json.dumps(live.getstate()).encode()

    def write(native: bytes) -> None:
        version, words, gauss = json.loads(native)
        live.setstate((version, tuple(words), gauss))

    return _Source("python", "python", read, write)


def _numpy_legacy(live: Any) -> _Source:
    """`live` is the module `numpy.random` or a `RandomState`."""

    def read() -> bytes:
        state = live.get_state(legacy=False)
        if state["bit_generator"] != "MT19937":
            raise usage(f"numpy.random draws from a {state['bit_generator']} here, and only its own MT19937 has a "
                        "form; "
                        "give that generator a name of its own and switch \"numpy\" off")
        inner = state["state"]
        parts = ["MT19937", inner["key"].tolist(), int(inner["pos"]), int(state["has_gauss"]), float(state["gauss"])]
        return json.dumps(parts).encode()

    def write(native: bytes) -> None:
        name, words, pos, has_gauss, gauss = json.loads(native)
        live.set_state((name, numpy.array(words, numpy.uint32), pos, has_gauss, gauss))

    return _Source("numpy-legacy", "numpy", read, write)


def _numpy(live: numpy.random.Generator) -> _Source:
    def read() -> bytes:
        return json.dumps(live.bit_generator.state, default=lambda array: array.tolist()).encode()

    def write(native: bytes) -> None:
        live.bit_generator.state = _arrays(json.loads(native), live.bit_generator.state)

    return _Source("numpy", "numpy", read, write)


def _arrays(state: Any, like: Any) -> Any:
    """`state` with arrays where `like` has some."""
    if isinstance(like, dict):
        return {name: _arrays(value, like.get(name)) for name, value in state.items()}
    return numpy.array(state, like.dtype) if isinstance(like, numpy.ndarray) else state


def _torch(live: torch.Generator) -> _Source:
    form = _FORMS.get(live.device.type)
    if form is None:
        raise usage(f"a generator on {live.device} has a state that no form is known of; it can only be switched off: "
                    "waystation.torch.Off(reason)")

    def read() -> bytes:
        return live.get_state().numpy().tobytes()

    def write(native: bytes) -> None:
        live.set_state(torch.frombuffer(bytearray(native), dtype=torch.uint8))

    return _Source(form, "torch", read, write)


def _mps() -> _Source:
    def write(native: bytes) -> None:
        torch.mps.set_rng_state(torch.frombuffer(bytearray(native), dtype=torch.uint8))

    return _Source("torch-mps", "torch", lambda: torch.mps.get_rng_state().numpy().tobytes(), write)


def _source(name: str, live: object) -> _Source:
    if isinstance(live, torch.Generator):
        return _torch(live)
    if isinstance(live, numpy.random.Generator):
        return _numpy(live)
    if isinstance(live, numpy.random.RandomState):
        return _numpy_legacy(live)
    if isinstance(live, random.Random):
        return _python(live)
    raise usage(f"stream {name!r} is a {type(live).__name__}; expected a torch.Generator, a numpy.random.Generator or "
                "RandomState, or a random.Random")


def _built_in(name: str) -> _Source | None:
    """The stream of that name, or None where this process has none."""
    if name == "python":
        return _python(random)
    if name == "numpy":
        return _numpy_legacy(numpy.random)
    if name == "torch":
        return _torch(torch.default_generator)
    if name == "mps":
        return _mps() if torch.backends.mps.is_available() else None
    module = getattr(torch, name)
    # A device that was not used has not drawn, and asking for its state would set it up.
    if not module.is_available() or not module.is_initialized():
        return None
    return _torch(module.default_generators[module.current_device()])


@dataclass(slots=True)
class _Stream:
    name: str
    source: _Source
    scope: PerRank | Shared
    lineage: dict[str, Any] | None = field(default=None)
    """The member `fork` of its record, once it was forked."""


class Streams:
    """The streams of one process.

    `rng` is True: those of `BUILT_IN` that exist here, False: the same, switched off; or a mapping, whose names are
    those of `BUILT_IN` or of generators of the trainer's own:

        {"python": PerRank(on_reshape="require"), "numpy": Off("never drawn from"), "augment": numpy_generator,
         "masks": (torch_generator, Shared())}

    What of `BUILT_IN` it does not name stays as with True. "torch" is PyTorch's generator of the CPU, "cuda" and "xpu"
    those of the current device, when it was used; a trainer that draws on several devices names their generators.
    One that comes into being later, as CUDA's at its first use, is found at the next capture or restore.
    Without a scope a stream is `PerRank()` where the job has axes; in a job of one process without axes nothing can
    change its shape. Raises `bad-argument` for anything else.
    """

    def __init__(self, rng: bool | Mapping[str, object], place: Place) -> None:
        self._place = place
        self._streams: dict[str, _Stream] = {}
        self._off: dict[str, str] = {}
        said = {} if isinstance(rng, bool) else dict(rng)
        self._built_in = {name: said.pop(name, rng is not False) for name in BUILT_IN}
        self.look()
        for name, what in said.items():
            live, scope = what if isinstance(what, tuple) and len(what) == 2 else (what, None)
            if isinstance(live, Off):
                self._off[name] = live.reason
            else:
                self._add(name, _source(name, live), scope)

    def look(self) -> None:
        """Takes in those of `BUILT_IN` that have come into being."""
        for name, what in self._built_in.items():
            if name not in self._streams and name not in self._off:
                self._say_built_in(name, what)

    def _say_built_in(self, name: str, what: object) -> None:
        off = Off() if what is False else what if isinstance(what, Off) else None
        if off is not None:
            # One that this process does not have needs no word.
            if name in ("python", "numpy", "torch") or _built_in(name) is not None:
                self._off[name] = off.reason
            return
        if what is not True and not isinstance(what, (PerRank, Shared)):
            raise usage(f"stream {name!r} takes True, False, PerRank(), Shared() or Off(); found {what!r}")
        source = _built_in(name)
        if source is not None:
            self._add(name, source, None if what is True else what)

    def _add(self, name: str, source: _Source, scope: object) -> None:
        if scope is None:
            scope = PerRank() if self._place.topology else PerRank(on_reshape="require")
        if not isinstance(scope, (PerRank, Shared)):
            raise usage(f"stream {name!r} takes PerRank() or Shared() for its scope; found {scope!r}")
        if isinstance(scope, PerRank):
            self._place.along(scope.axes)
        self._streams[name] = _Stream(name, source, scope)

    @property
    def names(self) -> tuple[str, ...]:
        """The streams that are captured."""
        return tuple(self._streams)

    @property
    def off(self) -> dict[str, str]:
        """Those that are not, and why."""
        return dict(self._off)

    def coordinate(self, name: str) -> tuple[tuple[str, int], ...]:
        """Which of the ranks' streams of that name this one is; empty when it is that of all."""
        scope = self._streams[name].scope
        return () if isinstance(scope, Shared) else self._place.along(scope.axes)

    def capture(self) -> list[Record]:
        """The records of this rank as its streams stand, and one of kind `uncaptured` for each that is off."""
        self.look()
        records = [Record("rng", stream.name, self._value(stream), self.coordinate(stream.name))
                   for stream in self._streams.values()]
        for name, reason in self._off.items():
            records.append(Record("uncaptured", name, {"kind": "rng", "reason": reason}))
        return records

    def _value(self, stream: _Stream) -> dict[str, Any]:
        native = stream.source.read()
        text = _core.stream_from_native(stream.source.form, native, on_reshape=stream.scope.on_reshape,
                                        framework=stream.source.framework)
        value: dict[str, Any] = json.loads(text)
        if stream.lineage is not None:
            value["fork"] = stream.lineage
        return value

    def natives(self, values: Mapping[str, dict[str, Any]]) -> dict[str, bytes]:
        """The states in values of records, by the stream's name, each in its generator's own form.

        Nothing is put anywhere. Raises `not-exact` where a generator cannot take the state: another algorithm.
        """
        natives = {}
        for name, value in values.items():
            source = self._streams[name].source
            native = _core.stream_to_native(source.form, json.dumps(value))
            if source.form == "numpy":
                self._check_kind(name, native)
            natives[name] = native
        return natives

    def _check_kind(self, name: str, native: bytes) -> None:
        saved = json.loads(native)["bit_generator"]
        here = json.loads(self._streams[name].source.read())["bit_generator"]
        if saved != here:
            raise error("not-exact", f"stream {name!r} was saved from NumPy's {saved} and is a {here} here",
                        remedy=f"make it numpy.random.Generator(numpy.random.{saved}()), or leave it out")

    def put(self, values: Mapping[str, dict[str, Any]], natives: Mapping[str, bytes]) -> None:
        """Puts states from `natives` in, of the records `values`, and reads each back.

        Raises `canary-mismatch` when a generator does not hold what was put in.
        """
        for name, native in natives.items():
            stream = self._streams[name]
            stream.source.write(native)
            stream.lineage = values[name].get("fork")
            held = self._value(stream)
            for member in ("algorithm", "state", "caches"):
                if held[member] != values[name][member]:
                    raise error("canary-mismatch", f"stream {name!r} does not hold the {member} that was put into it: "
                                                   "this version of its framework keeps states in another way")

    def is_as(self, name: str, native: bytes) -> bool:
        """Whether a stream still holds the state that was put in."""
        stream = self._streams[name]
        held = json.loads(_core.stream_from_native(stream.source.form, stream.source.read(), on_reshape="require",
                                                   framework=stream.source.framework))
        was = json.loads(_core.stream_from_native(stream.source.form, native, on_reshape="require",
                                                  framework=stream.source.framework))
        return bool(held["state"] == was["state"] and held["caches"] == was["caches"])
