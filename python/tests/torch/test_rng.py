"""Streams: every kind of generator goes on after capture and put as if nothing had happened, and nothing else is put
in."""

import json
import pathlib
import random

import numpy
import pytest
import torch

from waystation import _core
from waystation.errors import Error, NotExactError
from waystation.torch import rng
from waystation.torch.group import Place, Solo
from waystation.torch.rng import Off, PerRank, Shared, Streams

ALONE = Place()
VECTORS = json.loads((pathlib.Path(__file__).parents[3] / "state/tests/vectors/rng.json").read_text())["vectors"]


class Four(Solo):
    """Rank 1 of 4, whose collectives are not called here."""

    rank, size = 1, 4

    def __init__(self):
        pass


def four(rank=1):
    return Place((("dp", 2), ("tp", 2)), (("dp", rank // 2), ("tp", rank % 2)), Four())


def values(records):
    return {record.name: record.value for record in records if record.kind == "rng"}


def generators():
    """A fresh generator of each kind, how to draw from it, and half a pair of normals or half a word in its cache."""
    yield "python", random.Random(5), lambda g: [g.gauss(0, 1), g.random(), g.randrange(10**9)]
    yield "legacy", numpy.random.RandomState(5), lambda g: [g.standard_normal(), g.rand(), g.randint(1 << 30)]
    for name in ("PCG64", "PCG64DXSM", "Philox", "SFC64", "MT19937"):
        kind = getattr(numpy.random, name)
        yield (name, numpy.random.Generator(kind(5)),
               lambda g: [int(g.integers(2**32, dtype=numpy.uint32)), g.random(), g.standard_normal()])
    yield ("torch", torch.Generator().manual_seed(2**40 + 5),
           lambda g: [torch.randn(1, generator=g, dtype=torch.float64).item(), torch.rand(3, generator=g).tolist()])


@pytest.mark.parametrize("name,live,draw", list(generators()), ids=lambda it: it if isinstance(it, str) else "")
@pytest.mark.parametrize("drawn", [0, 1, 700])
def test_goes_on_to_the_bit(name, live, draw, drawn):
    for _ in range(drawn):
        draw(live)
    streams = Streams({"python": False, "numpy": False, "torch": False, name + "-mine": live}, ALONE)
    saved = values(streams.capture())
    assert list(saved) == [name + "-mine"]
    expected = [draw(live) for _ in range(5)]
    natives = streams.natives(saved)
    assert not streams.is_as(name + "-mine", natives[name + "-mine"])
    streams.put(saved, natives)
    assert streams.is_as(name + "-mine", natives[name + "-mine"])
    assert [draw(live) for _ in range(5)] == expected
    streams.put(saved, natives)
    assert values(streams.capture()) == saved


def test_the_generators_that_exist_without_being_named():
    random.seed(1), numpy.random.seed(2), torch.manual_seed(3)
    random.gauss(0, 1), numpy.random.randn(), torch.randn(1)
    streams = Streams(True, ALONE)
    assert streams.names == ("python", "numpy", "torch")

    def draw():
        return random.gauss(0, 1), random.random(), numpy.random.randn(3).tolist(), torch.randn(5).tolist()

    saved = values(streams.capture())
    expected = draw()
    random.seed(9), numpy.random.seed(9), torch.manual_seed(9)
    streams.put(saved, streams.natives(saved))
    assert draw() == expected
    assert torch.initial_seed() == 3


def test_the_bytes_of_pytorch_on_the_cpu_are_those_it_had():
    live = torch.Generator().manual_seed(7)
    torch.randn(20, generator=live, dtype=torch.float64), torch.rand(7, generator=live)
    before = live.get_state().numpy().tobytes()
    streams = Streams({"mine": live}, ALONE)
    natives = streams.natives({"mine": values(streams.capture())["mine"]})
    assert natives["mine"] == before


@pytest.mark.parametrize("row", [row for row in VECTORS if row.get("form") in ("torch-cuda", "torch-mps")],
                         ids=lambda row: row["id"])
def test_states_of_devices_are_converted_without_one(row):
    value = json.loads(_core.stream_from_native(row["form"], bytes.fromhex(row["native_hex"]), on_reshape="fork",
                                                framework="torch"))
    assert value["algorithm"] == row["algorithm"]
    assert value["state"] == row["state"]
    count = min(len(value["next_raw"]), len(row["next_raw"]))
    assert count >= 4 and value["next_raw"][:count] == row["next_raw"][:count]
    assert _core.stream_to_native(row["form"], json.dumps(value)) == bytes.fromhex(row["native_hex"])


def test_what_is_off_is_recorded_as_not_captured():
    off = {"python": Off("never-drawn-from"), "numpy": False, "worker": Off("drawn-by-workers")}
    records = Streams(off, ALONE).capture()
    said = {(record.kind, record.name): record.value for record in records}
    assert said.pop(("rng", "torch"))["algorithm"] == "mt19937"
    assert said == {
        ("uncaptured", "python"): {"kind": "rng", "reason": "never-drawn-from"},
        ("uncaptured", "numpy"): {"kind": "rng", "reason": "switched-off"},
        ("uncaptured", "worker"): {"kind": "rng", "reason": "drawn-by-workers"},
    }
    assert [record.kind for record in Streams(False, ALONE).capture()] == ["uncaptured"] * 3


def test_coordinates_and_what_becomes_of_them():
    shared, tp = torch.Generator(), torch.Generator()
    said = {"numpy": PerRank("require"), "shared": (shared, Shared()), "tp": (tp, PerRank(axes=("tp",)))}
    streams = Streams(said, four())
    records = {record.name: record for record in streams.capture()}
    where = {name: (record.coordinate, record.value["on_reshape"]) for name, record in records.items()}
    everywhere = (("dp", 0), ("tp", 1))
    assert where == {
        "python": (everywhere, "fork"), "torch": (everywhere, "fork"), "numpy": (everywhere, "require"),
        "shared": ((), "require"), "tp": ((("tp", 1),), "fork"),
    }
    alone = {record.name: record for record in Streams(True, ALONE).capture()}
    assert all(record.coordinate == () and record.value["on_reshape"] == "require" for record in alone.values())


def test_lineage_of_a_fork_is_written_again():
    live = torch.Generator()
    streams = Streams({"python": False, "numpy": False, "torch": False, "mine": live}, four())
    saved = values(streams.capture())
    fork = {"coordinate": [["dp", 0], ["tp", 1]], "manifest": "ab" * 32, "step": 5}
    saved["mine"]["fork"] = fork
    streams.put(saved, streams.natives(saved))
    live.manual_seed(3)
    again = values(streams.capture())
    assert again["mine"]["fork"] == fork and again["mine"]["state"] != saved["mine"]["state"]


def test_another_generator_is_not_given_the_state():
    saved = values(Streams({"mine": numpy.random.Generator(numpy.random.PCG64(1))}, ALONE).capture())
    pcg = {"mine": saved["mine"]}
    for other in (numpy.random.Generator(numpy.random.Philox(1)), torch.Generator(), random.Random(1)):
        with pytest.raises(Error):
            Streams({"mine": other}, ALONE).natives(pcg)
    # One engine, another form: torch's words would be right, its caches another thing.
    twister = {"mine": values(Streams({"mine": random.Random(1)}, ALONE).capture())["mine"]}
    with pytest.raises(Error):
        Streams({"mine": numpy.random.Generator(numpy.random.PCG64(1))}, ALONE).natives(twister)


def test_put_finds_a_generator_that_does_not_hold_it():
    live = random.Random(1)
    live.setstate = lambda state: None
    streams = Streams({"mine": live}, ALONE)
    saved = {"mine": values(streams.capture())["mine"]}
    live.random()
    with pytest.raises(Error) as caught:
        streams.put(saved, streams.natives(saved))
    assert caught.value.code == "canary-mismatch"


@pytest.mark.parametrize("said", [
    {"mine": 5}, {"python": "yes"}, {"mine": (torch.Generator(), "shared")},
    {"mine": (torch.Generator(), PerRank(axes=("pp",)))},
], ids=["a number", "a text for a global one", "no way to reshape", "an axis that is none"])
def test_what_is_no_stream_is_refused(said):
    with pytest.raises(Error) as caught:
        Streams(said, four())
    assert caught.value.code == "bad-argument"


def test_numpy_with_another_engine_is_refused():
    before = numpy.random.get_bit_generator()
    try:
        numpy.random.set_bit_generator(numpy.random.PCG64(1))
        with pytest.raises(Error, match="PCG64"):
            Streams(True, ALONE).capture()
    finally:
        numpy.random.set_bit_generator(before)


def test_numpys_pcg_is_not_put_into_another_pcg():
    saved = {"mine": values(Streams({"mine": numpy.random.Generator(numpy.random.PCG64(1))}, ALONE).capture())["mine"]}
    with pytest.raises(NotExactError, match="PCG64DXSM"):
        Streams({"mine": numpy.random.Generator(numpy.random.PCG64DXSM(1))}, ALONE).natives(saved)


@pytest.mark.parametrize("said", [True, False, {"cuda": PerRank()}], ids=str)
def test_a_device_that_is_first_used_later_is_not_missed(monkeypatch, said):
    of_this_process, there = rng._built_in, []
    device = torch.Generator()
    monkeypatch.setattr(rng, "_built_in", lambda name: of_this_process(name) if name != "cuda" else
                        rng._torch(device) if there else None)
    streams = Streams(said, ALONE)
    assert "cuda" not in {record.name for record in streams.capture()}
    there.append(True)
    found = {record.name: record.kind for record in streams.capture()}
    assert found["cuda"] == ("uncaptured" if said is False else "rng")
