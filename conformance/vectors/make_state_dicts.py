"""Makes state-dicts/*.json: value trees of what real frameworks hold beside their parameters.

Run with torch, jax, optax, mlx, numpy and grain installed: `python make_state_dicts.py`.

Each file is one canonical JSON text: `records` of kind `value`, `tensors` with the bytes of those
that the trees name, `versions`. Nothing is written unless every object comes back from its tree
equal in types, order and bits.
"""

import collections
import pathlib
import random
import struct
import warnings
from importlib import metadata

import grain.python
import jax
import jax.numpy as jnp
import mlx.core
import mlx.nn
import mlx.optimizers
import numpy
import optax
import torch
from torch.optim import lr_scheduler, swa_utils

from value_trees import Refused, Tensors, canonical, from_tree, same, to_tree

HERE = pathlib.Path(__file__).parent / "state-dicts"
STEPS = 3


def floats(n, shift):
    """A few numbers that any machine makes alike."""
    return [((7 * i + 3 * shift) % 11 - 5) / 8 for i in range(n)]


# PyTorch.


def torch_params(dtype=torch.float32):
    weight = torch.nn.Parameter(torch.tensor(floats(6, 1), dtype=dtype).reshape(2, 3))
    bias = torch.nn.Parameter(torch.tensor(floats(3, 2), dtype=dtype))
    return weight, bias


def stepped(optimizer, params, lazy=()):
    for step in range(STEPS):
        for i, param in enumerate(params):
            grad = torch.tensor(floats(param.numel(), step + i)).reshape(param.shape).to(param.dtype)
            param.grad = None if i in lazy else grad
        optimizer.step()
    return optimizer.state_dict()


def torch_optimizers():
    params = torch_params()
    groups = [{"params": [params[0]], "weight_decay": 0.1}, {"params": [params[1]], "lr": 0.002, "amsgrad": True}]
    yield "adamw", stepped(torch.optim.AdamW(groups, lr=1e-3), params)
    params = torch_params()
    named = [("layer.weight", params[0]), ("layer.bias", params[1])]
    yield "adamw-named-lazy", stepped(torch.optim.AdamW(named, lr=1e-3), params, lazy=(1,))
    params = torch_params(torch.bfloat16)
    yield "adamw-bf16", stepped(torch.optim.AdamW(params, lr=1e-3), params)
    params = torch_params()
    rate = torch.tensor(1e-3)
    yield "adam-tensor-rate", stepped(torch.optim.Adam(params, lr=rate, foreach=False, capturable=False), params)
    params = torch_params()
    yield "adamw-before-step", torch.optim.AdamW(params).state_dict()
    for momentum in (0, 0.9):
        params = torch_params()
        yield f"sgd-{momentum}", stepped(torch.optim.SGD(params, lr=0.1, momentum=momentum), params)
    makers = {
        "adafactor": lambda p: torch.optim.Adafactor(p),
        "adagrad": lambda p: torch.optim.Adagrad(p, initial_accumulator_value=0.1),
        "asgd": lambda p: torch.optim.ASGD(p),
        "nadam": lambda p: torch.optim.NAdam(p),
        "rmsprop": lambda p: torch.optim.RMSprop(p, momentum=0.9, centered=True),
        "rprop": lambda p: torch.optim.Rprop(p),
    }
    for name, make in makers.items():
        params = torch_params()
        yield name, stepped(make(params), params)
    params = torch_params()

    optimizer = torch.optim.LBFGS(params, lr=0.5, max_iter=3, history_size=4, line_search_fn=None)

    def closure():
        optimizer.zero_grad()
        loss = (params[0] ** 2).sum() + (params[1] ** 4).sum()
        loss.backward()
        return loss

    for _ in range(STEPS):
        optimizer.step(closure)
    yield "lbfgs", optimizer.state_dict()


def torch_schedules():
    def optimizer():
        return torch.optim.SGD(torch_params(), lr=0.1, momentum=0.9)

    def run(schedule, *arguments):
        for _ in range(STEPS):
            schedule.optimizer.step()
            schedule.step(*arguments)
        return schedule.state_dict()

    base = optimizer()
    warmup, cosine = lr_scheduler.LinearLR(base, 0.1, 1.0, 2), lr_scheduler.CosineAnnealingLR(base, 10)
    yield "sequential", run(lr_scheduler.SequentialLR(base, [warmup, cosine], milestones=[2]))
    base = optimizer()
    chain = [lr_scheduler.ConstantLR(base), lr_scheduler.ExponentialLR(base, 0.9)]
    yield "chained", run(lr_scheduler.ChainedScheduler(chain))
    yield "reduce-on-plateau-fresh", lr_scheduler.ReduceLROnPlateau(optimizer()).state_dict()
    yield "reduce-on-plateau", run(lr_scheduler.ReduceLROnPlateau(optimizer(), mode="max"), -0.25)
    yield "lambda", run(lr_scheduler.LambdaLR(optimizer(), lambda step: 0.5**step))
    yield "multi-step", run(lr_scheduler.MultiStepLR(optimizer(), milestones=[1, 2, 2, 9]))
    yield "one-cycle", run(lr_scheduler.OneCycleLR(optimizer(), max_lr=0.3, total_steps=20))
    yield "cyclic", run(lr_scheduler.CyclicLR(optimizer(), base_lr=0.01, max_lr=0.3))
    yield "warm-restarts", run(lr_scheduler.CosineAnnealingWarmRestarts(optimizer(), T_0=5))


def torch_rest():
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
    params = torch_params()
    optimizer = torch.optim.SGD(params, lr=0.1)
    for bad in (False, False, True):
        optimizer.zero_grad()
        loss = (params[0] ** 2).sum() * (float("inf") if bad else 1.0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    yield "grad-scaler", scaler.state_dict()
    yield "grad-scaler-off", torch.amp.GradScaler("cpu", enabled=False).state_dict()

    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    with torch.no_grad():
        for i, param in enumerate(model.parameters()):
            param.copy_(torch.tensor(floats(param.numel(), i)).reshape(param.shape))
    averaged = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.5))
    averaged.update_parameters(model)
    averaged.update_parameters(model)
    yield "averaged-model", averaged.state_dict()
    # An attribute of that dictionary, not an item: whoever wants it must ask for it.
    yield "averaged-model-metadata", averaged.state_dict()._metadata
    yield "cpu-generator", torch.Generator().manual_seed(42).get_state()
    yield "objects", {
        "size": torch.Size([2, 3]), "no-size": torch.Size([]), "dtype": torch.bfloat16,
        "device": torch.device("cuda", 1), "empty": torch.empty(0, 3),
        "scalar": torch.tensor(-0.0, dtype=torch.float64),
        "bool": torch.tensor([True, False]), "i64": torch.tensor([-(2**63), 2**63 - 1]),
    }  # fmt: skip


# JAX.


def optax_states():
    params = {"w": jnp.asarray(floats(6, 1), jnp.float32).reshape(2, 3), "b": jnp.asarray(floats(3, 2), jnp.float32)}
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 2, 10)
    sgd = optax.sgd(0.1, momentum=0.9)
    transforms = {
        "adamw-schedule": optax.adamw(schedule, mu_dtype=jnp.bfloat16),
        "multi-steps": optax.MultiSteps(optax.adamw(1e-3), every_k_schedule=2),
        "inject-hyperparams": optax.inject_hyperparams(optax.adamw)(learning_rate=schedule, b1=0.9),
        "chain-empty": optax.chain(optax.clip_by_global_norm(1.0), optax.identity(), sgd),
        "adafactor": optax.adafactor(1e-3, min_dim_size_to_factor=2),
        "partition": optax.partition({"train": sgd, "freeze": optax.set_to_zero()}, {"w": "train", "b": "freeze"}),
        "add-noise": optax.chain(optax.add_noise(0.01, 0.55, jax.random.key(7)), sgd),
    }
    for name, transform in transforms.items():
        state = transform.init(params)
        for step in range(STEPS):
            grads = jax.tree.map(lambda p, s=step: jnp.asarray(floats(p.size, s), p.dtype).reshape(p.shape), params)
            _, state = transform.update(grads, state, params)
        yield name, state
    yield "keys", {
        "threefry": jax.random.key(42), "rbg": jax.random.key(42, impl="rbg"),
        "unsafe": jax.random.key(42, impl="unsafe_rbg"), "raw": jax.random.PRNGKey(42),
        "several": jax.random.split(jax.random.key(0), 3),
    }  # fmt: skip


def mlx_states():
    mlx.core.set_default_device(mlx.core.cpu)
    several = [mlx.optimizers.Lion(1e-3), mlx.optimizers.SGD(0.1)]
    for name, optimizer in (
        ("adamw", mlx.optimizers.AdamW(mlx.optimizers.cosine_decay(1e-3, 10))),
        ("multi", mlx.optimizers.MultiOptimizer(several, [lambda name, _: name == "w"])),
    ):
        params = {"w": mlx.core.array(floats(6, 1)).reshape(2, 3), "b": mlx.core.array(floats(3, 2))}
        for step in range(STEPS):
            grads = {key: mlx.core.array(floats(p.size, step)).reshape(p.shape) for key, p in params.items()}
            params = optimizer.apply_gradients(grads, params)
        mlx.core.eval(params)
        yield name, optimizer.state
    mlx.core.random.seed(42)
    yield "random", [mlx.core.array(key) for key in mlx.core.random.state]


# Random states and data.


def python_random():
    generator = random.Random(42)
    yield "fresh", generator.getstate()
    generator.gauss(0.0, 1.0)
    yield "gauss", generator.getstate()


def numpy_random():
    legacy = numpy.random.RandomState(42)
    legacy.standard_normal()
    yield "legacy-tuple", legacy.get_state()
    yield "legacy-dict", legacy.get_state(legacy=False)
    for name in ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"):
        engine = getattr(numpy.random, name)(42)
        numpy.random.Generator(engine).integers(0, 2**32, 3, dtype=numpy.uint32)
        yield name, engine.state


def grain_states():
    dataset = grain.python.MapDataset.range(20).shuffle(seed=42)
    iterators = {
        "map": iter(dataset.to_iter_dataset()),
        "window": iter(grain.experimental.WindowShuffleIterDataset(dataset.to_iter_dataset(), window_size=8, seed=1)),
        "mix": iter(grain.python.IterDataset.mix([dataset.to_iter_dataset(), dataset.to_iter_dataset()], [0.25, 0.75])),
    }
    for name, iterator in iterators.items():
        for _ in range(5):
            next(iterator)
        yield name, iterator.get_state()
    sampler = grain.python.IndexSampler(20, grain.python.NoSharding(), shuffle=True, num_epochs=1, seed=42)
    loader = iter(grain.python.DataLoader(data_source=range(20), sampler=sampler))
    next(loader)
    yield "loader", loader.get_state()


# What frameworks could hold.


def bits64(pattern):
    return struct.unpack("<d", struct.pack("<Q", pattern))[0]


def nested(levels, make, leaf):
    for _ in range(levels):
        leaf = make(leaf)
    return leaf


def oddities():
    yield "floats", {
        "zero": 0.0, "negative zero": -0.0, "inf": float("inf"), "-inf": float("-inf"), "nan": float("nan"),
        "quiet nan with payload": bits64(0x7FF8_0000_DEAD_BEEF), "negative nan": bits64(0xFFF8_0000_0000_0001),
        "signalling nan": bits64(0x7FF0_0000_0000_0001), "subnormal": 5e-324, "least normal": 2.0**-1022,
        "largest": bits64(0x7FEF_FFFF_FFFF_FFFF), "tenth": 0.1, "third": 1 / 3, "whole": 1.0,
    }  # fmt: skip
    yield "integers", [
        0, -1, 1, 2**53 - 1, 2**53, 2**53 + 1, -(2**53) + 1, -(2**53), 2**63 - 1, 2**63, 2**64 - 1, 2**64,
        -(2**63), -(2**64), 2**127 - 1, 2**127, 2**128 - 1, -(2**200), 10**60,
    ]  # fmt: skip
    yield "numpy-scalars", [
        numpy.float32(0.1), numpy.float32("-0.0"), numpy.uint32(0x7FC0_1234).view(numpy.float32), numpy.float64(0.1),
        numpy.uint64(0x7FF0_0000_0000_0001).view(numpy.float64), numpy.float16(0.1), numpy.int64(-5),
        numpy.int64(-(2**63)), numpy.uint64(2**64 - 1), numpy.int8(-128), numpy.bool_(True), numpy.dtype("<f4"),
    ]  # fmt: skip
    yield "numpy-arrays", {
        "scalar": numpy.array(1.5), "empty": numpy.zeros((0, 2)), "bool": numpy.array([True, False]),
        "u64": numpy.array([2**64 - 1], numpy.uint64), "f16": numpy.array([[0.1, -0.0]], numpy.float16),
    }  # fmt: skip
    yield "sequences", [(), [], (1,), [1], [(1, [2, (3,)])], ((),), [[]], (None, True, False, 1, 1.0, "1")]
    yield "maps", {
        "empty": {}, "order": {"b": 1, "a": 2, "": 3},
        "mixed": {1: "int", "1": "str", -1: "negative", 2**64: "big", "-1": "text"},
        "nested": {0: {0: {0: {}}}}, "ordered": collections.OrderedDict([(2, "b"), (1, "a")]),
        "empty ordered": collections.OrderedDict(), "counter": collections.Counter({10: 2, 5: 1}),
    }  # fmt: skip
    yield "bytes", [b"", b"\0", bytes(range(256)), bytes(8192), bytearray(b"\xff\x00"), bytearray()]
    yield "long-bytes", bytes(i * 7 % 256 for i in range(8193))
    yield "strings", [
        "", "\0", "\x1f\x7f", '"\\/', "\b\f\n\r\t", "é", "e\u0301", "\u2028\ufeff", "😀", "\uffff", "a/b.c",
        '{"f64":"0"}',
    ]  # fmt: skip
    yield "sets", [set(), {3, 1, 2}, frozenset({"b", "a"}), {10, 9, -1}]
    yield "complex", [complex(1, -2), complex(-0.0, float("nan"))]
    # A record's tree begins at level 4 of a part or a page: it may be 97 deep.
    yield "deep-lists", nested(48, lambda leaf: [leaf], 0.5)
    yield "deep-tuples", nested(48, lambda leaf: (leaf,), -0.0)
    yield "deep-maps", nested(32, lambda leaf: {"k": leaf}, 1.5)
    for name, bare in (("null", None), ("true", True), ("zero", 0), ("text", "x"), ("float", 1.0), ("big", 2**64)):
        yield f"bare-{name}", bare


def refusals():
    """What has no tree; a writer must say so, not guess."""
    for bad in ({True: 1}, {1.0: 1}, {None: 1}, {(1, 2): 1}, object(), lambda: 0, "\ud800", {"f": numpy.longdouble(1)}):
        try:
            to_tree(bad, Tensors("refused"))
        except (Refused, UnicodeEncodeError):
            continue
        raise AssertionError(bad)


FAMILIES = {
    "torch-optimizers": torch_optimizers,
    "torch-schedules": torch_schedules,
    "torch-rest": torch_rest,
    "optax": optax_states,
    "mlx": mlx_states,
    "python-random": python_random,
    "numpy-random": numpy_random,
    "grain": grain_states,
    "oddities": oddities,
}


def main():
    warnings.simplefilter("ignore")
    refusals()
    HERE.mkdir(exist_ok=True)
    versions = {name: metadata.version(name) for name in ("grain", "jax", "mlx", "numpy", "optax", "torch")}
    for family, make in FAMILIES.items():
        records, rows = [], {}
        for name, value in make():
            tensors = Tensors(f"{family}/{name}")
            tree = to_tree(value, tensors)
            assert same(from_tree(tree, tensors), value), (family, name)
            record = tree if isinstance(tree, dict) else {"tree": tree}
            records.append({"kind": "value", "name": f"{family}/{name}", "value": record})
            rows |= tensors.rows
        text = canonical({"records": records, "tensors": list(rows.values()), "versions": versions})
        (HERE / f"{family}.json").write_text(text, encoding="utf-8", newline="")


if __name__ == "__main__":
    main()
