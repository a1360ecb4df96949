"""Makes orders.json: orders of records as PyTorch and Grain really give them.

Run with torch, grain and numpy installed: `python make_orders.py`. It takes about a minute and
2 GB of memory, for the length from which torch.randperm works differently. Every order is also
computed from its definition (chapter 18), below, and must agree before anything is written.

A number beyond 2^53 - 1 is written {"int": "..."}. `sha256` is over the first `count` ordinals
as u64 little-endian, `at` gives single places.
"""

import hashlib
import json
import pathlib
import struct
from importlib import metadata

import grain.python
import numpy
import torch
from grain._src.python.dataset.transformations import shuffle as grain_shuffle
from grain._src.python.experimental.index_shuffle.python import index_shuffle_module
from torch.utils.data import DataLoader, DistributedSampler

HERE = pathlib.Path(__file__).parent
WORD = 2**32 - 1
# From here on torch.randperm draws 64 bits a place, and fills the list from the inside.
LARGE = WORD // 20


# The definitions.


def mt19937(seed):
    """Raw outputs of the engine seeded with the low 32 bits of `seed`."""
    engine = numpy.random.MT19937()
    engine._legacy_seeding(seed & WORD)
    while True:
        yield from engine.random_raw(4096).tolist()


def randperm(n, draws):
    assert n < LARGE
    order = list(range(n))
    for i in range(n - 1):
        j = i + next(draws) % (n - i)
        order[i], order[j] = order[j], order[i]
    return order


def round_keys(seed, rounds):
    """What C++'s std::seed_seq of one word gives for so many words."""
    keys = [0x8B8B8B8B] * rounds
    spread = next(t for at, t in ((623, 11), (68, 7), (39, 5), (7, 3), (0, (rounds - 1) // 2)) if rounds >= at)
    p = (rounds - spread) // 2
    q = p + spread
    for k in range(2 * rounds):
        here, near, far, before = (i % rounds for i in (k, k + p, k + q, k - 1))
        if k < rounds:
            mixed = keys[here] ^ keys[near] ^ keys[before]
            one = 1664525 * (mixed ^ mixed >> 27) & WORD
            two = one + (1 if k == 0 else k + seed if k == 1 else k) & WORD
            keys[near] = keys[near] + one & WORD
            keys[far] = keys[far] + two & WORD
        else:
            mixed = keys[here] + keys[near] + keys[before] & WORD
            one = 1566083941 * (mixed ^ mixed >> 27) & WORD
            two = one - here & WORD
            keys[near] ^= one
            keys[far] ^= two
        keys[here] = two
    return keys


def index_shuffle(i, n, seed, rounds):
    if n == 1:
        return 0
    bits = (n - 2).bit_length()
    width = max(16, bits + bits % 2) // 2
    mask = 2**width - 1
    keys = round_keys(seed, rounds)

    def rotated(value, by):
        by %= width
        return (value << by | value >> width - by) & mask

    def mixed(value):
        return rotated(value, 1) & rotated(value, 8) ^ rotated(value, 2)

    while True:
        high, low = i >> width & mask, i & mask
        for j in range(0, rounds, 2):
            high ^= mixed(low) ^ keys[j] & mask
            low ^= mixed(high) ^ keys[j + 1] & mask
        i = high << width | low
        if i < n:
            return i


# The frameworks.


def integer(value):
    return value if abs(value) < 2**53 else {"int": str(value)}


def digest(ordinals):
    return hashlib.sha256(struct.pack(f"<{len(ordinals)}Q", *ordinals)).hexdigest()


def entry(ordinals, **members):
    return {**members, "count": len(ordinals), "first": ordinals[:16], "sha256": digest(ordinals)}


def torch_randperm():
    for n in (0, 1, 2, 3, 10, 624, 625, 1000, 100003):
        for seed in (0, 42, 2**32 - 1, 2**32 + 42, 2**64 - 1):
            if n == 100003 and seed > 42:
                continue
            order = torch.randperm(n, generator=torch.Generator().manual_seed(seed)).tolist()
            assert order == randperm(n, mt19937(seed)), (n, seed)
            yield entry(order, n=n, seed=integer(seed))
    for n in (LARGE - 1, LARGE):
        order = torch.randperm(n, generator=torch.Generator().manual_seed(42), dtype=torch.int32)
        at = [[i, int(order[i])] for i in (n // 2, n - 2, n - 1)]
        prefix = order[:1_000_000].tolist()
        yield {**entry(prefix, n=n, seed=42), "at": at, "first": prefix[:64]}


def distributed_sampler():
    for n, world in ((10, 1), (10, 3), (10, 4), (1002, 8), (3, 8), (8, 4)):
        for drop_last in (False, True):
            if drop_last and n < world:
                continue  # Torch then counts below zero.
            for seed, epoch in ((0, 0), (42, 0), (42, 1), (40, 3)):
                shares = []
                for rank in range(world):
                    sampler = DistributedSampler(range(n), world, rank, seed=seed, drop_last=drop_last)
                    sampler.set_epoch(epoch)
                    shares.append(list(sampler))
                order = [item for step in zip(*shares, strict=True) for item in step]
                whole = randperm(n, mt19937(seed + epoch))
                assert order == [whole[i % n] for i in range(len(order))]
                rule = "drop-last" if drop_last else "pad"
                epoch_end = {"rule": rule, "unit": world}
                shares = [share[:4] for share in shares]
                yield entry(order, n=n, seed=seed, epoch=epoch, epoch_end=epoch_end, shares=shares)


def data_loader():
    """One running generator: two outputs for the workers' seed, and two shuffles, an epoch."""
    n, seed = 7, 5
    loader = DataLoader(range(n), batch_size=None, shuffle=True, generator=torch.Generator().manual_seed(seed))
    draws = mt19937(seed)
    for epoch in range(3):
        order = [int(item) for item in loader]
        next(draws), next(draws)
        assert order == randperm(n, draws)
        randperm(n, draws)
        yield entry(order, n=n, seed=seed, epoch=epoch)


def grain_index_shuffle():
    def real(i, n, seed, rounds):
        return index_shuffle_module.index_shuffle(i, max_index=n - 1, seed=seed, rounds=rounds)

    # 65537 is the trap: the last place repeats the first, and ordinal 65536 never comes.
    whole = (1, 2, 3, 7, 10, 256, 257, 1000, 65535, 65536, 65537, 65538, 100003)
    large = (2**18 + 1, 2**20 - 1, 2**20, 2**20 + 1, 2**30 + 1, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1, 2**32)
    for n in whole + large:
        for seed in (0, 42, 2**32 - 1):
            for rounds in (4, 6, 8, 32):
                if rounds > 4 and n not in (7, 1000, 65537, 2**20, 2**32):
                    continue
                order = [real(i, n, seed, rounds) for i in range(min(n, 5000) if n > 1000 else n)]
                if n in whole and rounds == 4:
                    order = [real(i, n, seed, rounds) for i in range(n)]
                at = [[i, real(i, n, seed, rounds)] for i in sorted({0, n // 2, n - 1})]
                for i in sorted({0, 1, n - 1} | {len(order) * k // 20 for k in range(20)}):
                    if i < n:
                        assert real(i, n, seed, rounds) == index_shuffle(i, n, seed, rounds)
                yield {**entry(order, n=n, seed=seed, rounds=rounds), "at": at}


def grain_epochs():
    for n, seed in ((10, 42), (10, 2**32 - 1), (1000, 7)):
        dataset = grain.python.MapDataset.range(n).shuffle(seed=seed).repeat(3)
        for epoch in range(3):
            order = [int(dataset[epoch * n + i]) for i in range(n)]
            assert order == [index_shuffle(i, n, (seed + epoch) % 2**32, 4) for i in range(n)]
            yield entry(order, n=n, seed=seed, seed_rule="seed+epoch", epoch=epoch, rounds=4)
        once = grain.python.MapDataset.range(n).shuffle(seed=seed).repeat(2, reseed_each_epoch=False)
        order = [int(once[n + i]) for i in range(n)]
        yield entry(order, n=n, seed=seed, seed_rule="seed", epoch=1, rounds=4)


def grain_derived_seeds():
    """The seed of `shuffle()` after `seed(s)`, some nodes further on."""
    for seed in (0, 42, 2**32 - 1):
        dataset = grain.python.MapDataset.range(10).seed(seed)
        for depth in (1, 2, 3):
            shuffled = dataset.shuffle()
            derived = int(numpy.random.SeedSequence([seed, depth]).generate_state(1)[0])
            assert shuffled._seed == derived
            order = [int(shuffled[i]) for i in range(10)]
            assert order == [index_shuffle(i, 10, derived, 4) for i in range(10)]
            yield entry(order, n=10, pipeline_seed=seed, depth=depth, seed=derived, rounds=4)
            dataset = dataset.map(lambda item: item)


def grain_window_shuffle():
    """Grain fills a window by the order and then gives it from its end."""
    for n, window, seed in ((25, 10, 7), (20, 10, 7), (3, 10, 42), (1000, 64, 0)):
        source = grain.python.MapDataset.range(n).to_iter_dataset()
        order = [int(item) for item in grain_shuffle.WindowShuffleIterDataset(source, window_size=window, seed=seed)]
        expected = []
        for index, start in enumerate(range(0, n, window)):
            m = min(window, n - start)
            expected += [start + index_shuffle(m - 1 - k, m, seed + index, 4) for k in range(m)]
        assert order == expected
        yield entry(order, n=n, window=window, seed=seed, rounds=4, direction="backward")
    for n, window, seed in ((20, 10, 7), (1024, 64, 0)):
        dataset = grain_shuffle.WindowShuffleMapDataset(grain.python.MapDataset.range(n), window_size=window, seed=seed)
        order = [int(dataset[i]) for i in range(n)]
        assert order == [i - i % window + index_shuffle(i % window, window, seed + i // window, 4) for i in range(n)]
        yield entry(order, n=n, window=window, seed=seed, rounds=4, direction="forward")


def main():
    versions = {name: metadata.version(name) for name in ("grain", "numpy", "torch")}
    groups = {
        "torch.randperm-cpu": torch_randperm,
        "torch.utils.data.DistributedSampler": distributed_sampler,
        "torch.utils.data.DataLoader": data_loader,
        "grain.index_shuffle": grain_index_shuffle,
        "grain.MapDataset.shuffle": grain_epochs,
        "grain.MapDataset.seed": grain_derived_seeds,
        "grain.window_shuffle": grain_window_shuffle,
    }
    lines = [f'"versions":{json.dumps(versions, sort_keys=True)}']
    for name, make in groups.items():
        rows = ",\n".join(json.dumps(row, sort_keys=True, separators=(",", ":")) for row in make())
        lines.append(f'"{name}":[\n{rows}\n]')
    text = "{" + ",\n".join(lines) + "}\n"
    json.loads(text)
    (HERE / "orders.json").write_text(text)


if __name__ == "__main__":
    main()
