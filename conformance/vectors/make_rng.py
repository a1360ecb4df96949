"""Makes state/tests/vectors/rng.json: streams of real frameworks, and forks.

Run with jax, mlx, numpy and torch installed: `python make_rng.py`. `from` says where a vector is
from: a framework that gave its states and outputs, or `definition` where none can on a CPU
(PyTorch's generators on CUDA and MPS, the crates of Rust, most forks): those are computed by
`rng_engines.py`, which is written from chapter 17. What a framework gave must be what that gives.

`next_raw` are as many outputs as there are, `after_sha256` and `after_1000_sha256` the digests of
the state after 5 and 1000 of them (keys are not moved). The state of a Mersenne Twister is given
by how it was come by. `native` is a framework's own form, a value tree, or its bytes in hex; long
ones are digests, of trees over their canonical JSON. An integer beyond 2^53 - 1 is {"int": "..."}.
"""

import hashlib
import json
import pathlib
import platform
import random
import struct
from importlib import metadata

import jax
import mlx.core
import numpy
import torch
from rng_engines import ENGINES, W32, W64, ThreefrySplit, Twister, fork_seed, seeded, split_mix
from torch.func import _random as torch_keys

STATE_VECTORS = pathlib.Path(__file__).parents[2] / "state" / "tests" / "vectors"
# A seed is 64 bits also for JAX.
jax.config.update("jax_enable_x64", True)


# The form of vectors.


def integer(value):
    return int(value) if abs(value) < 2**53 else {"int": str(value)}


def integers(values):
    return {"list": [integer(int(value)) for value in values]}


def f64(value):
    return {"f64": struct.pack(">d", value).hex()}


def digest(data):
    return hashlib.sha256(data).hexdigest()


def digest_of_tree(tree):
    return digest(json.dumps(tree, separators=(",", ":"), sort_keys=True).encode())


def drawn(algorithm, state, count):
    """By the definition: outputs, and the state after them."""
    engine = ENGINES[algorithm](state)
    return engine.draw(count), engine.state()


def vector(name, source, algorithm, state, real, *, count=5, make=None, **members):
    """`real(n)` gives n outputs of the framework, and the state after them; None: there is none."""
    wholes = {n: drawn(algorithm, state, n) for n in (count, 5, 1000)}
    moved = any(after != state for _, after in wholes.values())
    if real is None:
        assert source == "definition"
    else:
        for n, expected in wholes.items():
            if moved or n in (count, 1000):
                assert real(n) == expected, (name, n)
    row = {"id": name, "from": source, "algorithm": algorithm}
    if make is None:
        row["state"] = state.hex()
    else:
        row |= {"make": make, "state_sha256": digest(state)}
    digits = ENGINES[algorithm].width // 4
    row["next_raw"] = [f"{output:0{digits}x}" for output in wholes[count][0]]
    for n, member in ((5, "after_sha256"), (1000, "after_1000_sha256")):
        if wholes[n][1] is not None:
            row[member] = digest(wholes[n][1])
    return row | members


def twister_vector(name, source, seeding, state, real, **members):
    """With how the engine comes to `state` from one of its seedings."""
    [(kind, seed)] = seeding.items()
    engine = Twister.of_words(seed) if kind == "init_by_array" else Twister.of_word(seed)
    count = 0
    while engine.state() != state:
        assert count < 10_000, name
        engine.next()
        count += 1
    make = {kind: seed, "drawn": count}
    return vector(name, source, "mt19937", state, real, make=make, **members)


# NumPy.

NUMPY = {"PCG64": "pcg64-xsl-rr", "PCG64DXSM": "pcg64-dxsm", "Philox": "philox4x64-10/numpy", "SFC64": "sfc64"}


def numpy_state(bit_generator):
    state = bit_generator.state
    inner = state["state"]
    if state["bit_generator"].startswith("PCG"):
        return inner["state"].to_bytes(16, "little") + inner["inc"].to_bytes(16, "little")
    if state["bit_generator"] == "SFC64":
        return struct.pack("<4Q", *inner["state"].tolist())
    words = [*inner["counter"].tolist(), *inner["key"].tolist(), *state["buffer"].tolist()]
    return struct.pack("<10Q2I", *words, state["buffer_pos"], 0)


def numpy_tree(value):
    if isinstance(value, dict):
        return {"map": [[name, numpy_tree(item)] for name, item in value.items()]}
    if isinstance(value, str):
        return value
    return integers(value) if isinstance(value, numpy.ndarray) else integer(value)


def numpy_vector(name, bit_generator):
    state = bit_generator.state
    assert state["has_uint32"] or not state["uinteger"]

    def real(count):
        again = type(bit_generator)()
        again.state = state
        outputs = again.random_raw(count).tolist()
        return outputs, numpy_state(again)

    caches = {}
    if state["has_uint32"]:
        caches = {"caches": [{"kind": "numpy/u32-half", "bits": f"{state['uinteger']:08x}"}]}
    algorithm = NUMPY[state["bit_generator"]]
    form = {"form": "numpy", "native": numpy_tree(state)}
    return vector(name, "numpy", algorithm, numpy_state(bit_generator), real, **caches, **form)


def numpy_vectors():
    for kind in (numpy.random.PCG64, numpy.random.PCG64DXSM, numpy.random.Philox, numpy.random.SFC64):
        yield numpy_vector(f"numpy/{kind.__name__}/42", kind(42))
        middle = kind(7)
        middle.random_raw(1001)
        numpy.random.Generator(middle).integers(2**32, dtype=numpy.uint32)
        yield numpy_vector(f"numpy/{kind.__name__}/7-mid-half", middle)
    carry = numpy.random.Philox(1)
    counter = numpy.array([W64, W64, W64, 5], numpy.uint64)
    buffer = numpy.array([1, 2, 3, W64], numpy.uint64)
    inner = carry.state["state"] | {"counter": counter}
    carry.state = carry.state | {"state": inner, "buffer": buffer, "buffer_pos": 3}
    yield numpy_vector("numpy/Philox/carry", carry)
    wraps = numpy.random.SFC64(1)
    words = [*wraps.state["state"]["state"][:3], W64 - 1]
    wraps.state = wraps.state | {"state": {"state": numpy.array(words, numpy.uint64)}}
    yield numpy_vector("numpy/SFC64/counter-wraps", wraps)


def numpy_legacy_vector(name, seed, state):
    def canonical(generator):
        _, key, pos, _, _ = generator.get_state()
        return struct.pack("<625I", *key.tolist(), pos)

    def real(count):
        again = numpy.random.RandomState(seed)
        again.set_state(state.get_state())
        outputs = again._bit_generator.random_raw(count).tolist()
        return outputs, canonical(again)

    kind, key, pos, has_gauss, gauss = state.get_state()
    tree = {"tuple": [kind, integers(key), pos, has_gauss, f64(gauss)]}
    members = {"form": "numpy-legacy", "native_sha256": digest_of_tree(tree)}
    if has_gauss:
        members = {"caches": [{"kind": "numpy/legacy-gauss-f64", "bits": f64(gauss)["f64"]}]} | members
    return twister_vector(name, "numpy", {"init_genrand": seed}, canonical(state), real, **members)


def numpy_legacy_vectors():
    yield numpy_legacy_vector("numpy-legacy/42", 42, numpy.random.RandomState(42))
    normals = numpy.random.RandomState(42)
    normals.standard_normal(3)
    yield numpy_legacy_vector("numpy-legacy/42-3-normals", 42, normals)


# Python.


def python_state(generator):
    return struct.pack("<625I", *generator.getstate()[1])


def python_vector(name, words, generator):
    def real(count):
        again = random.Random()
        again.setstate(generator.getstate())
        outputs = [again.getrandbits(32) for _ in range(count)]
        return outputs, python_state(again)

    version, internal, gauss = generator.getstate()
    tree = {"tuple": [version, {"tuple": list(internal)}, None if gauss is None else f64(gauss)]}
    members = {"form": "python", "native_sha256": digest_of_tree(tree)}
    if gauss is not None:
        members = {"caches": [{"kind": "python/gauss-next-f64", "bits": f64(gauss)["f64"]}]} | members
    return twister_vector(name, "python", {"init_by_array": words}, python_state(generator), real, **members)


def python_vectors():
    yield python_vector("python/42", [42], random.Random(42))
    gauss = random.Random(42)
    gauss.gauss(0, 1)
    yield python_vector("python/42-gauss", [42], gauss)
    middle = random.Random(2**64 + 5)
    for _ in range(700):
        middle.getrandbits(32)
    yield python_vector("python/2pow64+5-mid", [5, 0, 1], middle)


# PyTorch.


def torch_cpu_state(form):
    left = struct.unpack_from("<i", form, 8)[0]
    return struct.pack("<625I", *struct.unpack_from("<624Q", form, 24), 625 - left)


def torch_generator(form):
    generator = torch.Generator()
    generator.set_state(torch.frombuffer(bytearray(form), dtype=torch.uint8))
    return generator


def torch_cpu_vector(name, generator, **note):
    form = generator.get_state().numpy().tobytes()
    seed = generator.initial_seed()

    def real(count):
        # Two outputs at once are all bits of an i64; of one output this gives only the low ones.
        pairs = torch.empty(-(-count // 2), dtype=torch.int64)
        pairs.random_(-(2**63), None, generator=torch_generator(form))
        outputs = [word for pair in pairs.tolist() for word in (pair >> 32 & W32, pair & W32)]
        again = torch_generator(form)
        low = torch.empty(count, dtype=torch.int64).random_(0, 2**16, generator=again)
        assert low.tolist() == [output % 2**16 for output in outputs[:count]]
        return outputs[:count], torch_cpu_state(again.get_state().numpy().tobytes())

    written = form
    if struct.unpack_from("<Q", form, 16)[0] == 0:
        # A generator that was just seeded; 624 does the same.
        written = form[:16] + struct.pack("<Q", 624) + form[24:]
        draws = [torch.rand(700, generator=torch_generator(it)).tolist() for it in (form, written)]
        assert draws[0] == draws[1]
        note = {"note": "the digest is with next 624"}
    double, double_valid = struct.unpack_from("<QxxxxxxxxI", form, 5024)
    single, single_valid = struct.unpack_from("<I?", form, 5048)
    caches = []
    if single_valid:
        caches.append({"kind": "torch/normal-f32", "bits": f"{single:08x}"})
    if double_valid:
        caches.append({"kind": "torch/normal-f64", "bits": f"{double:016x}"})
    members = {"caches": caches} if caches else {}
    members |= {"initial_seed": integer(seed), "form": "torch-cpu", "native_sha256": digest(written), **note}
    return twister_vector(name, "torch", {"init_genrand": seed & W32}, torch_cpu_state(form), real, **members)


def torch_cpu_vectors():
    for name, seed in (("42", 42), ("2pow40+1", 2**40 + 1), ("2pow64-1", 2**64 - 1)):
        yield torch_cpu_vector(f"torch-cpu/{name}", torch.Generator().manual_seed(seed))
    normals = torch.Generator().manual_seed(1234)
    torch.randn(5, generator=normals, dtype=torch.float64)
    yield torch_cpu_vector("torch-cpu/1234-5-normals", normals)
    form = normals.get_state().numpy().tobytes()
    form = form[:5048] + struct.pack("<f?", -1.5, True) + form[5053:]
    both = torch_generator(form)
    assert both.get_state().numpy().tobytes() == form
    note = "torch carries the cache of binary32 that was put in: nothing fills it"
    yield torch_cpu_vector("torch-cpu/1234-both-caches", both, note=note)


def torch_key_vector(key):
    seed, offset = key.tolist()

    def real(count):
        pairs = torch_keys.randint(key, -(-count // 2), low=None, high=None, dtype=torch.uint64).tolist()
        outputs = [word for pair in pairs for word in (pair >> 32, pair & W32)]
        return outputs[:count], struct.pack("<2Q", *key.tolist())

    form = {"form": "torch-key", "native": integers((seed, offset))}
    state = struct.pack("<2Q", seed, offset)
    return vector(f"torch-key/{seed:x}-{offset:x}", "torch", "philox4x32-10/torch-key", state, real, **form)


def torch_key_vectors():
    at = lambda seed, offset: torch.tensor([seed, offset], dtype=torch.uint64)  # noqa: E731
    yield torch_key_vector(torch_keys.key(42))
    yield torch_key_vector(at(W64, W32))
    yield torch_key_vector(torch_keys.fold_in(torch_keys.key(42), 7))
    yield torch_key_vector(at(1, W64))


def torch_device_vectors():
    for seed, offset in ((42, 0), (42, 4), (0x123456789ABCDEF, 0x3FFFFFFFC), (W64, 0x8000010000000000)):
        state = struct.pack("<2Q", seed, offset)
        form = {"form": "torch-cuda", "native_hex": state.hex()}
        name = f"torch-cuda/{seed:x}-{offset:x}"
        yield vector(name, "definition", "philox4x32-10/torch-cuda", state, None, **form)
    for seed, offset in ((42, 0), (0x8000000000000009, W32)):
        place, aux = struct.pack("<2Q", seed, offset), struct.pack("<7I", 1, 2, 3, 4, 5, W32, 7)
        form = {"form": "torch-mps", "native_hex": (aux + place).hex()}
        name = f"torch-mps/{seed:x}-{offset:x}"
        yield vector(name, "definition", "philox4x32-10/torch-mps", place + aux, None, **form)


# JAX and MLX.


def jax_words(key):
    return numpy.asarray(jax.random.key_data(key)).tolist()


def jax_vector(name, variant, key, count):
    def real(n):
        jax.config.update("jax_threefry_partitionable", variant == "partitionable")
        outputs = numpy.asarray(jax.random.bits(key, (n,), numpy.uint32)).tolist()
        return outputs, struct.pack("<2I", *jax_words(key))

    words = jax_words(key)
    algorithm = f"threefry2x32-20/jax-{variant}"
    form = {"form": "jax", "native": integers(words)}
    return vector(name, "jax", algorithm, struct.pack("<2I", *words), real, count=count, **form)


def jax_vectors():
    lengths = {
        "partitionable": ((0, 5), (42, 5)),
        "split": ((0, 5), (42, 4), (42, 5), (42, 8), (42, 9)),
    }
    for variant, these in lengths.items():
        for seed, count in these:
            yield jax_vector(f"jax/{variant}/{seed}-{count}", variant, jax.random.key(seed), count)
    jax.config.update("jax_threefry_partitionable", True)
    key = jax.random.fold_in(jax.random.split(jax.random.key(7), 2)[1], 3)
    yield jax_vector("jax/partitionable/7-split-fold", "partitionable", key, 7)
    for algorithm, implementation in (("jax-rbg", "rbg"), ("jax-unsafe-rbg", "unsafe_rbg")):
        words = jax_words(jax.random.key(42, impl=implementation))
        state = struct.pack("<4I", *words)
        form = {"form": "jax", "native": integers(words)}
        # What its outputs are is the backend's business.
        yield vector(f"{algorithm}/42", "jax", algorithm, state, lambda n, it=state: ([], it), count=0, **form)


def mlx_vector(name, key):
    def real(count):
        # New keys are raw outputs, two each.
        assert count % 2 == 0
        outputs = numpy.array(mlx.core.random.split(key, count // 2)).ravel().tolist()
        return outputs, struct.pack("<2I", *key.tolist())

    words = key.tolist()
    state = struct.pack("<2I", *words)
    # Of an odd number of outputs MLX shows only what a binary32 in [0, 1) has of them.
    shown = mlx.core.random.uniform(shape=(5,), key=key).tolist()
    for output, real_number in zip(ThreefrySplit(state).draw(5), shown, strict=True):
        assert abs(output / 2**32 - real_number) < 2**-23
    form = {"form": "mlx", "native": integers(words)}
    return vector(name, "mlx", "threefry2x32-20/jax-split", state, real, count=6, **form)


def mlx_vectors():
    yield mlx_vector("mlx/42", mlx.core.random.key(42))
    mlx.core.random.seed(42)
    mlx.core.random.uniform(shape=(3,))
    yield mlx_vector("mlx/42-drawn", mlx.core.random.state[0])


# The crates of Rust.


def rust_vectors():
    seed, stream, word_pos = bytes(range(32)), 7, 2**40 + 6
    state = seed + struct.pack("<Q", stream) + word_pos.to_bytes(16, "little")
    tree = {"map": [["seed", integers(seed)], ["stream", stream], ["word_pos", word_pos]]}
    for algorithm in ("chacha8/rand", "chacha12/rand", "chacha20/rand"):
        form = {"form": "rust", "native": tree}
        yield vector(f"rust/{algorithm}", "definition", algorithm, state, None, **form)
    # As `seed_from_u64(42)`, ten outputs on.
    begin = struct.pack("<4Q", *(word for word, _ in zip(split_mix(42), range(4), strict=False)))
    _, state = drawn("xoshiro256++", begin, 10)
    form = {"form": "rust", "native": {"map": [["s", integers(struct.unpack("<4Q", state))]]}}
    yield vector("rust/xoshiro256++", "definition", "xoshiro256++", state, None, **form)
    # As `Pcg32::new(42, 54)`, ten outputs on.
    inc = 54 << 1 | 1
    begin = struct.pack("<2Q", (inc + 42) * 0x5851F42D4C957F2D + inc & W64, inc)
    _, state = drawn("pcg32-xsh-rr", begin, 10)
    word, inc = struct.unpack("<2Q", state)
    form = {"form": "rust", "native": {"map": [["state", integer(word)], ["increment", inc]]}}
    yield vector("rust/pcg32", "definition", "pcg32-xsh-rr", state, None, **form)


# Forks.


def real_forks(seed):
    """Where seeding a framework does what a fork does: its name and the state."""
    first, second, *_ = (word for word, _ in zip(split_mix(seed), range(2), strict=False))
    key = numpy.array([first, second], numpy.uint64)
    words = lambda key: struct.pack(f"<{len(key)}I", *key)  # noqa: E731
    threefry = words(jax_words(jax.random.key(numpy.uint64(seed))))
    rbg, unsafe = (words(jax_words(jax.random.key(numpy.uint64(seed), impl=it))) for it in ("rbg", "unsafe_rbg"))
    assert words(mlx.core.random.key(seed).tolist()) == threefry
    return {
        "mt19937": ("python", python_state(random.Random(seed))),
        "philox4x64-10/numpy": ("numpy", numpy_state(numpy.random.Philox(key=key))),
        "philox4x32-10/torch-key": ("torch", struct.pack("<2Q", *torch_keys.key(seed).tolist())),
        "threefry2x32-20/jax-partitionable": ("jax", threefry),
        "threefry2x32-20/jax-split": ("jax", threefry),
        "jax-rbg": ("jax", rbg),
        "jax-unsafe-rbg": ("jax", unsafe),
    }


def forks(run, step, stream, coordinate):
    seed = fork_seed(run, step, stream, coordinate)
    real = real_forks(seed)
    for algorithm, engine in ENGINES.items():
        state = seeded(algorithm, seed)
        source, given = real.get(algorithm, ("definition", state))
        assert given == state, algorithm
        row = {"algorithm": algorithm, "from": source}
        row |= {"state": state.hex()} if len(state) < 100 else {"state_sha256": digest(state)}
        outputs, _ = drawn(algorithm, state, 4)
        yield row | {"next_raw": [f"{output:0{engine.width // 4}x}" for output in outputs]}


def lines(rows):
    return ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)


def main():
    versions = {"python": platform.python_version()}
    versions |= {name: metadata.version(name) for name in ("numpy", "torch", "jax", "mlx")}
    groups = (
        numpy_vectors, numpy_legacy_vectors, python_vectors, torch_cpu_vectors, torch_key_vectors,
        torch_device_vectors, jax_vectors, mlx_vectors, rust_vectors,
    )  # fmt: skip
    vectors = [row for make in groups for row in make()]
    assert len({row["id"] for row in vectors}) == len(vectors)
    place = {"run": "demo", "step": 1000, "stream": "dropout", "coordinate": [["dp", 2]]}
    fork = place | {"seed": integer(fork_seed(**place))}
    text = (
        f'{{\n"versions":{json.dumps(versions)},\n"vectors":[\n{lines(vectors)}\n],\n'
        f'"fork":{json.dumps(fork, separators=(",", ":"))},\n"forks":[\n{lines(forks(**place))}\n]\n}}\n'
    )
    json.loads(text)
    (STATE_VECTORS / "rng.json").write_text(text)


if __name__ == "__main__":
    main()
