"""Code of the user's that raises within a restore: the error says that the state is part old and part new."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch_states import save

from waystation.errors import NotExactError
from waystation.torch import TrainingState


class _Broken:
    def state_dict(self) -> dict[str, Any]:
        return {"a": 1}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise RuntimeError("no such thing")


def test_an_exception_of_the_users_says_that_the_state_is_torn(tmp_path: Path) -> None:
    model, fresh = nn.Linear(2, 3), nn.Linear(2, 3)
    ckpt = save(tmp_path, TrainingState(model, values={"own": _Broken()}).snapshot(), step=0)
    with pytest.raises(NotExactError, match="broke off with RuntimeError: no such thing") as caught:
        TrainingState(fresh, values={"own": _Broken()}).restore(ckpt)
    assert "part old and part new" in str(caught.value)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert torch.equal(fresh.weight, model.weight)  # it was touched, as the error says

    def stopped() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TrainingState(fresh).restore(_saved_again(tmp_path, model), iterators=stopped)


def _saved_again(tmp_path: Path, model: nn.Module) -> Any:
    (tmp_path / "again").mkdir()
    return save(tmp_path / "again", TrainingState(model).snapshot(), step=0)
