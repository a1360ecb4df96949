"""The generated tables, and errors by their codes."""

from __future__ import annotations

import pathlib
import pickle

import pytest

import waystation
from waystation import _registry, errors

REGISTRY = pathlib.Path(__file__).resolve().parents[2] / "spec" / "registry"


def ids(file: str) -> list[str]:
    text = (REGISTRY / file).with_suffix(".toml").read_text()
    return [line.split('"')[1] for line in text.splitlines() if line.startswith("id = ")]


def test_all_of_the_registry_is_there() -> None:
    assert list(_registry.DTYPES) == ids("dtypes") and len(_registry.DTYPES) == 29
    assert list(_registry.CODES) == ids("codes") == list(_registry.REMEDIES)
    assert list(_registry.ROLES) == ids("roles")
    assert list(_registry.CLASSES) == ids("classes")
    assert [slot.id for slot in _registry.SLOTS] == ids("slots")
    assert list(_registry.RECORD_KINDS) == ids("record-kinds")
    assert list(_registry.GRADES) == ids("grades")


def test_rows_say_what_the_files_say() -> None:
    assert _registry.DTYPES["BF16"] == ("BF16", 16, None, "bfloat16", "bfloat16", 4)
    assert _registry.DTYPES["F32"] == ("F32", 32, "float32", None, "float32", 2)
    assert _registry.ROLES["optimizer"] == ("optimizer", "required", "required")
    assert _registry.SLOTS[0] == ("adam.m", "optimizer", "exp_avg", "mu")
    assert _registry.CODES["crc-mismatch"] == "corrupt" and _registry.GRADES[0] == "exact"


@pytest.mark.parametrize("code", _registry.CODES)
def test_each_code_has_an_exception_of_its_class(code: str) -> None:
    error = errors.error(code, "expected a, found b")
    classes = {
        "malformed": errors.MalformedError,
        "corrupt": errors.CorruptError,
        "incomplete": errors.IncompleteError,
        "unsupported": errors.UnsupportedError,
        "limit": errors.LimitError,
        "io": errors.StorageError,
        "usage": errors.UsageError,
    }
    assert isinstance(error, classes[_registry.CODES[code]]) and error.class_ == _registry.CODES[code]
    assert str(error) == f"{code}: expected a, found b ({_registry.REMEDIES[code]})"


def test_an_error_reads_as_the_program_prints_it() -> None:
    error = errors.from_parts(
        "crc-mismatch",
        "corrupt",
        "expected 1, found 2",
        "Take another.",
        "model-0.safetensors",
        4096,
        "/a/0",
        '["value","x",[]]',
        '["main","param","w","","",[]]',
        "integrity.chunk",
    )
    assert type(error) is errors.CorruptError and error.rule == "integrity.chunk" and error.location.offset == 4096
    assert str(error) == (
        'crc-mismatch: model-0.safetensors @4096 #/a/0 record ["value","x",[]] tensor '
        '["main","param","w","","",[]]: expected 1, found 2 [integrity.chunk] (Take another.)'
    )


def test_errors_are_also_what_python_code_catches() -> None:
    assert isinstance(errors.usage("x"), ValueError)
    assert isinstance(errors.error("not-found", "x"), (KeyError, waystation.NotFoundError))
    assert isinstance(errors.error("not-found", "x"), KeyError) and str(errors.error("not-found", "x")).startswith(
        "not-found: x"
    )
    assert isinstance(errors.error("bad-region", "x"), IndexError)
    assert isinstance(errors.error("io-full", "x"), OSError)
    assert isinstance(errors.error("exists", "x"), FileExistsError)
    assert isinstance(errors.error("no-checkpoint", "x"), waystation.NoCheckpointError)
    assert not isinstance(errors.error("no-checkpoint", "x"), OSError)


def test_errors_travel_between_processes() -> None:
    error = errors.from_parts("io-full", "io", "write", "Free space.", "f", 0, None, None, None, None)
    error.extra = 1  # type: ignore[attr-defined]
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is errors.StorageError and str(again) == str(error) and again.location == error.location
    assert again.extra == 1 and again.__dict__ == error.__dict__


def test_a_code_of_a_newer_native_half_keeps_its_class() -> None:
    error = errors.from_parts("sun-spots", "corrupt", "x", "y", None, None, None, None, None, None)
    assert type(error) is errors.CorruptError and error.code == "sun-spots"
    assert pickle.loads(pickle.dumps(error)).code == "sun-spots"


def test_every_public_name_is_there_and_no_other() -> None:
    for name in waystation.__all__:
        assert getattr(waystation, name) is not None, name
    assert set(waystation.__all__) <= set(dir(waystation))
    with pytest.raises(AttributeError, match="no attribute 'sav'"):
        waystation.sav  # noqa: B018
    assert callable(waystation.save)
