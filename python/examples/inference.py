"""Only the weights of a checkpoint of training, for inference.

    python inference.py --run runs/demo        # the newest checkpoint of a run
    python inference.py CKPT --map             # without copying: pages of the file, private to this process

Without either it makes a small training with its optimizer first, so that it runs as it stands. Optimizer state,
masters and random streams of the checkpoint are neither read nor looked at.
"""

from __future__ import annotations

import argparse
import tempfile
import time

import torch

import waystation


def model() -> torch.nn.Module:
    """The architecture: a checkpoint of training has weights, not code."""
    return torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))


def load(path: str, *, copy: bool) -> torch.nn.Module:
    """The model with the weights of the checkpoint at `path`; every byte that is read is verified."""
    with torch.device("meta"):
        net = model()
    with waystation.open(path) as checkpoint:
        toy = net.state_dict()
        names = list(toy)
        if any(name not in checkpoint or checkpoint[name].shape != tuple(toy[name].shape) for name in names):
            has = ", ".join([*list(checkpoint)[:3], "…"]) if len(checkpoint) else "no weights"
            raise SystemExit(
                f"{checkpoint.path} is of another model, with {has}: this example loads its own toy model only, whose "
                f"weights are {', '.join(names)}. Write yours in model()."
            )
        if copy:
            weights = checkpoint.load(names, framework="torch")
        else:
            weights = {name: checkpoint[name].map(framework="torch") for name in names}
    net.load_state_dict(weights, assign=True)
    return net.eval()


def small_training(run: str) -> None:
    """A few steps, saved with all there is to resume: here by DCP's own interface."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict

    import waystation.dcp

    torch.manual_seed(0)
    net = model()
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
    weights, state = get_state_dict(net, optimizer)
    job = waystation.Job.start(run)
    dcp.save(
        {"model": weights, "optim": state},
        storage_writer=waystation.dcp.Writer(job, step=3),
        planner=waystation.dcp.SavePlanner(),
        no_dist=True,
    )


def main() -> None:
    """Loads, and computes one batch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", nargs="?", metavar="CKPT")
    parser.add_argument("--run", metavar="DIR", help="take the newest checkpoint of this run")
    parser.add_argument("--map", action="store_true", help="map the weights and do not copy them")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        run = asked.run
        if run is None and asked.checkpoint is None:
            run = f"{scratch}/run"
            small_training(run)
        path = asked.checkpoint or waystation.latest(run).path
        begun = time.perf_counter()
        net = load(path, copy=not asked.map)
        print(
            f"{path}: {sum(weight.nbytes for weight in net.parameters())} bytes of weights in "
            f"{1000 * (time.perf_counter() - begun):.1f} ms"
        )
        with torch.inference_mode():
            print("answer:", float(net(torch.ones(1, 64)).sum()))


if __name__ == "__main__":
    main()
