"""Element types against ml_dtypes and PyTorch, and elements below a byte against arithmetic."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from waystation import Error, dtypes
from waystation._registry import DTYPES

SMALL = [row.id for row in DTYPES.values() if row.bits < 8]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_has_one_of_numpy_and_back(dtype: str) -> None:
    kind = dtypes.numpy_dtype(dtype)
    assert dtypes.of_numpy(kind) == dtype
    assert kind.itemsize == max(1, dtypes.bits(dtype) // 8)


@pytest.mark.parametrize("dtype", [row.id for row in DTYPES.values() if row.torch])
def test_types_of_torch_and_back(dtype: str) -> None:
    kind = dtypes.torch_dtype(dtype)
    assert dtypes.of_torch(kind) == dtype
    assert kind.itemsize * 8 == dtypes.bits(dtype) * dtypes.per_element(dtype)


@pytest.mark.parametrize("dtype", [row.id for row in DTYPES.values() if row.torch and row.dlpack > 6 and row.bits == 8])
def test_torch_and_numpy_mean_the_same_by_a_byte(dtype: str) -> None:
    every = np.arange(256, dtype=np.uint8)
    ours = every.view(dtypes.numpy_dtype(dtype)).astype(np.float32)
    theirs = torch.from_numpy(every.copy()).view(dtypes.torch_dtype(dtype)).to(torch.float32).numpy()
    np.testing.assert_array_equal(ours, theirs)


def test_float4_of_torch_has_the_lower_bits_first() -> None:
    # 0x21 is the pair 1, 2 in order: 0.5 and 1.0.
    packed = np.array([0x21], np.uint8)
    np.testing.assert_array_equal(dtypes.unpack("F4_E2M1", packed, 2).astype(np.float32), [0.5, 1.0])


def test_dlpack_codes_are_those_that_numpy_and_torch_say() -> None:
    for row in DTYPES.values():
        if row.numpy is not None:
            assert {"b": 6, "i": 0, "u": 1, "f": 2, "c": 5}[np.dtype(row.numpy).kind] == row.dlpack, row


@pytest.mark.parametrize("dtype", SMALL)
@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 9, 1000, (1 << 20) + 5])
def test_elements_below_a_byte(dtype: str, count: int) -> None:
    width = dtypes.bits(dtype)
    codes = np.random.default_rng(count).integers(0, 1 << width, count).astype(np.uint8)
    elements = codes
    if dtype.startswith("I"):  # a byte of ml_dtypes has the sign above
        elements = np.where(codes >> (width - 1), codes | (0xFF << width & 0xFF), codes).astype(np.uint8)
    packed = dtypes.pack(dtype, elements.view(dtypes.numpy_dtype(dtype)))
    assert packed.nbytes == dtypes.packed_bytes(dtype, (count,)) == (count * width + 7) // 8
    some = min(count, 1000)
    number = sum(int(code) << (at * width) for at, code in enumerate(codes[:some]))
    head = packed[: (some * width + 7) // 8].copy()
    if some < count and some * width % 8:
        head[-1] &= (1 << some * width % 8) - 1
    assert head.tobytes() == number.to_bytes((some * width + 7) // 8, "little")
    np.testing.assert_array_equal(dtypes.unpack(dtype, packed, count).view(np.uint8), elements)


def test_int4_means_the_same_as_a_number() -> None:
    numbers = np.arange(-8, 8)
    packed = dtypes.pack("I4", numbers.astype(ml_dtypes.int4))
    assert packed.tobytes().hex() == "98badcfe10325476"
    np.testing.assert_array_equal(dtypes.unpack("I4", packed, 16).astype(int), numbers)


@pytest.mark.parametrize(
    "bad",
    [
        np.dtype("O"),
        np.dtype("U3"),
        np.dtype("M8[s]"),
        np.dtype("i4,f4"),
        np.dtype(np.longdouble),
        np.dtype(ml_dtypes.float8_e4m3),
        np.dtype(ml_dtypes.float8_e4m3b11fnuz),
        np.dtype("V4"),
    ],
)
def test_numpy_types_without_an_id_are_refused(bad: Any) -> None:
    with pytest.raises(Error) as refused:
        dtypes.of_numpy(bad)
    assert refused.value.code == "unsupported-dtype" and "uint8" in refused.value.remedy


@pytest.mark.parametrize("bad", [torch.complex32, torch.qint8, torch.uint4, torch.bits8])
def test_torch_types_without_an_id_are_refused(bad: torch.dtype) -> None:
    with pytest.raises(Error) as refused:
        dtypes.of_torch(bad)
    assert refused.value.code == "unsupported-dtype"


def test_an_unknown_id_is_refused() -> None:
    for ask in (dtypes.numpy_dtype, dtypes.torch_dtype, dtypes.bits):
        with pytest.raises(Error, match="'F7' is none of"):
            ask("F7")
    with pytest.raises(Error, match="has no type for it"):
        dtypes.torch_dtype("F6_E2M3")


def test_without_ml_dtypes_an_error_says_what_to_install() -> None:
    code = """
import sys
sys.modules["ml_dtypes"] = None
from waystation import dtypes, errors
assert dtypes.numpy_dtype("F32") == "float32"
try:
    dtypes.numpy_dtype("BF16")
except errors.UnsupportedError as why:
    assert "pip install 'waystation[dtypes]'" in str(why) and "raw()" in str(why), why
else:
    raise SystemExit("no error")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
