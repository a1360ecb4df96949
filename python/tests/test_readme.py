"""The code of the READMEs does what they say: it is taken out of them and run."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import waystation

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python/README.md"


def blocks(readme: Path) -> list[str]:
    found = re.findall(r"^```python\n(.*?)^```", readme.read_text(), re.DOTALL | re.MULTILINE)
    assert found, f"{readme} shows no Python"
    return found


def the_one_with(text: str, readme: Path = PACKAGE) -> str:
    (found,) = [block for block in blocks(readme) if text in block]
    return found


@pytest.mark.parametrize("readme", [PACKAGE, ROOT / "README.md"])
def test_save_and_load(readme: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    exec(compile(the_one_with("waystation.save(", readme), str(readme), "exec"), {})
    assert waystation.verify("ckpt").ok
    assert np.array_equal(waystation.open("ckpt")["w"].numpy(), np.zeros((4, 3), np.float32))


def test_train_and_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop as it stands, with a step of training for the dots; run twice it goes on, to what one run comes to."""
    torch = pytest.importorskip("torch")
    code = the_one_with("ResumableSampler(len(dataset)")
    dots = re.search(r"^( *)\.\.\..*$", code, re.MULTILINE)
    assert dots is not None
    step = ["optimizer.zero_grad()", "model(batch[0]).square().mean().backward()", "optimizer.step()", "scheduler.step()"]
    code = code.replace(dots.group(0), "\n".join(dots.group(1) + line for line in step))
    code = code.replace("num_workers=2", "num_workers=0").replace("every=100", "every=3")

    def train(folder: str, epochs: int) -> tuple[int, list[torch.Tensor]]:
        place = tmp_path / folder
        place.mkdir(exist_ok=True)
        monkeypatch.chdir(place)
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
        optimizer = torch.optim.AdamW(model.parameters())
        names = {
            "model": model,
            "optimizer": optimizer,
            "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2),
            "dataset": torch.utils.data.TensorDataset(torch.arange(384.0).reshape(96, 4)),
            "epochs": epochs,
        }
        exec(compile(code, str(PACKAGE), "exec"), names)
        return names["state"].progress.optimizer_step, [each.detach().clone() for each in model.parameters()]

    steps, whole = train("whole", 4)
    assert steps == 12
    # Two epochs of three steps end with a save; the second start goes on from there.
    assert train("parts", 2)[0] == 6
    steps, parts = train("parts", 4)
    assert steps == 12
    assert all(torch.equal(one, other) for one, other in zip(whole, parts, strict=True))
