"""Hugging Face directories, out and in: what `transformers` computes with them, before and after."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import waystation
from waystation.errors import Error, ExistsError
from waystation.interop import export_hf, from_checkpoint, import_dcp, import_hf, load_into
from waystation.key import Key

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def _llama(tied: bool) -> Any:
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=tied,
    )
    return transformers.LlamaForCausalLM(config)


def _gpt2() -> Any:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=4)
    )


def _bert() -> Any:
    return transformers.BertModel(
        transformers.BertConfig(
            vocab_size=64,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=48,
            max_position_embeddings=32,
        )
    )


_MODELS = {"llama": lambda: _llama(False), "llama-tied": lambda: _llama(True), "gpt2-tied": _gpt2, "bert": _bert}


@pytest.fixture(params=_MODELS)
def model(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(17)
    return _MODELS[request.param]().eval()


def _answer(model: Any) -> Any:
    with torch.no_grad():
        return model(torch.arange(12).reshape(2, 6))[0]


def _saved(model: Any, path: Path, **more: Any) -> str:
    """A checkpoint of a live model: tied weights are aliases there."""
    buffers = [name for name, _ in model.named_buffers(remove_duplicate=False) if name in model.state_dict()]
    config = {"config.json": model.config.to_json_string().encode()}
    return waystation.save(path, dict(model.state_dict()), buffers=buffers, attachments={**config, **more})


def test_transformers_loads_an_export_and_answers_the_same(model: Any, tmp_path: Path) -> None:
    made = export_hf(_saved(model, tmp_path / "c"), tmp_path / "hf", max_shard_size="20KB")
    assert made.files > 1
    loaded, told = type(model).from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not told["missing_keys"] and not told["unexpected_keys"] and not told["mismatched_keys"]
    assert torch.equal(_answer(loaded.eval()), _answer(model))


def test_an_import_of_what_transformers_wrote_goes_back_the_same(model: Any, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "hf", max_shard_size="20KB")
    made = import_hf(tmp_path / "hf", out=tmp_path / "c", writers=2)
    assert waystation.verify(made.path).ok
    export_hf(made.path, tmp_path / "back")
    loaded = type(model).from_pretrained(tmp_path / "back").eval()
    assert torch.equal(_answer(loaded), _answer(model))
    assert (tmp_path / "back/config.json").read_bytes() == (tmp_path / "hf/config.json").read_bytes()


def test_load_into_a_live_model(model: Any, tmp_path: Path) -> None:
    path = _saved(model, tmp_path / "c")
    torch.manual_seed(99)
    other = type(model)(model.config).eval()
    assert not torch.equal(_answer(other), _answer(model))
    assert load_into(other, path) == ([], [])
    assert torch.equal(_answer(other), _answer(model))
    other = type(model)(model.config).eval()
    load_into(other, path, assign=True)
    other.tie_weights()
    assert torch.equal(_answer(other), _answer(model))


def test_from_checkpoint_makes_the_model_of_its_configuration(tmp_path: Path) -> None:
    torch.manual_seed(5)
    model = _llama(True).eval()
    model.config.architectures = ["LlamaForCausalLM"]
    loaded = from_checkpoint(_saved(model, tmp_path / "c"))
    assert type(loaded) is type(model) and torch.equal(_answer(loaded.eval()), _answer(model))
    waystation.save(tmp_path / "bare", {"w": np.ones(1)})
    with pytest.raises(waystation.NotFoundError, match=r"config\.json"):
        from_checkpoint(tmp_path / "bare")


_KERNEL = "kernels-community/flash-attn"
_CONFIGS: dict[str, tuple[Any, str]] = {
    "a list": ([1], "no JSON object"),
    "no JSON": (b"{", "no JSON"),
    "nested without end": (b"[" * 200_000, "no JSON"),
    "no type": ({}, "model_type None"),
    "a type that is no text": ({"model_type": ["llama"]}, "model_type"),
    "a type of nobody": ({"model_type": "mine"}, "model_type 'mine'"),
    "a function": ({"model_type": "llama", "architectures": ["pipeline"]}, "no model 'pipeline'"),
    "a class that is no model": ({"model_type": "llama", "architectures": ["LlamaConfig"]}, "no model"),
    "a dotted name": ({"model_type": "llama", "architectures": ["utils.hub"]}, "no model"),
    "a name that is no text": ({"model_type": "llama", "architectures": [7]}, "no list of names"),
    "names that are no list": ({"model_type": "llama", "architectures": "LlamaModel"}, "no list of names"),
    "a size that is no number": ({"model_type": "llama", "hidden_size": "wide"}, "makes nothing of it"),
    "a quantizer": ({"model_type": "llama", "quantization_config": {"quant_method": "fp8"}}, "quantized"),
}


@pytest.mark.parametrize("name", _CONFIGS)
def test_a_configuration_of_a_checkpoint_is_checked(name: str, tmp_path: Path) -> None:
    config, message = _CONFIGS[name]
    raw = config if isinstance(config, bytes) else json.dumps(config).encode()
    waystation.save(tmp_path / "c", {"w": np.ones(1)}, attachments={"config.json": raw})
    with pytest.raises(Error, match=message) as refused:
        from_checkpoint(tmp_path / "c")
    assert refused.value.code == "bad-argument"


def test_what_a_configuration_names_is_neither_fetched_nor_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import modeling_flash_attention_utils, modeling_utils
    from transformers.integrations import hub_kernels

    def fetched(*_: Any, **__: Any) -> Any:
        raise AssertionError("something was fetched from the Hub")

    for module, name in (
        (modeling_utils, "lazy_import_flash_attention"),
        (modeling_flash_attention_utils, "lazy_import_flash_attention"),
        (hub_kernels, "get_kernel"),
    ):
        monkeypatch.setattr(module, name, fetched, raising=False)
    model = _llama(False).eval()
    said = {**json.loads(model.config.to_json_string()), "architectures": ["LlamaForCausalLM"]}
    said |= {
        "attn_implementation": _KERNEL,
        "_attn_implementation": _KERNEL,
        "auto_map": {"AutoConfig": "them/theirs--mine.Config", "AutoModelForCausalLM": "them/theirs--mine.Model"},
    }
    waystation.save(
        tmp_path / "c",
        {name: tensor.contiguous() for name, tensor in model.state_dict().items()},
        attachments={"config.json": json.dumps(said).encode()},
    )
    loaded = from_checkpoint(tmp_path / "c")
    assert torch.equal(_answer(loaded.eval()), _answer(model))
    assert "kernels-community" not in str(loaded.config._attn_implementation)
    with pytest.raises(Error, match="trust_remote_code"):
        from_checkpoint(tmp_path / "c", trust_remote_code=True)


def test_load_into_refuses_before_it_touches(tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = torch.nn.Linear(3, 2)
    before = model.weight.detach().clone()
    cases = [
        ({"weight": torch.zeros(2, 3)}, "bias that the checkpoint lacks"),
        ({"weight": torch.zeros(2, 3), "bias": torch.zeros(2), "odd": torch.zeros(1)}, "odd that the module lacks"),
        ({"weight": torch.zeros(2, 4), "bias": torch.zeros(2)}, r"weight: the checkpoint has shape \[2, 4\]"),
        ({"weight": torch.zeros(2, 3).bfloat16(), "bias": torch.zeros(2)}, "weight: the checkpoint has BF16"),
    ]
    for number, (state, message) in enumerate(cases):
        with pytest.raises(Error, match=message):
            load_into(model, waystation.save(tmp_path / str(number), state))
        assert torch.equal(model.weight, before)
    assert load_into(model, tmp_path / "0", strict=False) == (["bias"], [])
    assert not model.weight.any()
    load_into(
        model,
        waystation.save(tmp_path / "p", {"net.weight": torch.ones(2, 3), "net.bias": torch.ones(2)}),
        prefix="net.",
    )
    assert bool((model.weight == 1).all())


def test_of_a_checkpoint_of_training_only_the_model_goes_out(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    weight = torch.randn(4, 3)
    state = {
        Key.param("w"): weight,
        Key.buffer("mean"): torch.ones(2),
        Key("main", "master", "w"): weight.double(),
        Key("main", "extension", "x", "mine/x"): torch.zeros(9),
    }
    path = waystation.save(tmp_path / "c", state, attachments={"tokenizer/vocab.txt": b"a\nb\n"})
    made = export_hf(path, tmp_path / "hf", config={"model_type": "mine", "a": 1})
    exported = load_file(tmp_path / "hf/model.safetensors")
    assert sorted(exported) == ["mean", "w"] and torch.equal(exported["w"], weight)
    assert (made.files, made.attachments) == (1, 1)
    assert (tmp_path / "hf/tokenizer/vocab.txt").read_bytes() == b"a\nb\n"
    assert json.loads((tmp_path / "hf/config.json").read_text()) == {"a": 1, "model_type": "mine"}
    export_hf(path, tmp_path / "params", roles=["param"])
    assert sorted(load_file(tmp_path / "params/model.safetensors")) == ["w"]


def test_other_names(tmp_path: Path) -> None:
    from safetensors import safe_open

    tied = torch.randn(5, 3)
    state = {"wte": tied, "head": tied, "b": torch.arange(4), "c": torch.tensor(2.5, dtype=torch.bfloat16)}
    path = waystation.save(tmp_path / "c", state)
    made = export_hf(path, tmp_path / "hf", names=lambda name: f"model.{name}", max_shard_size=32)
    assert made.tied == {"model.head": "model.wte"} or made.tied == {"model.wte": "model.head"}
    index = json.loads((tmp_path / "hf/model.safetensors.index.json").read_text())["weight_map"]
    found = {}
    for name, file in index.items():
        with safe_open(tmp_path / "hf" / file, "pt") as opened:
            found[name] = opened.get_tensor(name)
            for alias, of in opened.metadata().items():
                assert alias == "format" or (alias, of) in made.tied.items()
    assert all(torch.equal(tensor, state[name.removeprefix("model.")]) for name, tensor in found.items())
    assert set(found) | set(made.tied) == {f"model.{name}" for name in state}
    export_hf(path, tmp_path / "some", names={"b": "renamed"})
    with safe_open(tmp_path / "some/model.safetensors", "pt") as opened:
        assert "renamed" in opened.keys() and torch.equal(opened.get_tensor("renamed"), state["b"])  # noqa: SIM118
    with pytest.raises(Error, match="would both be"):
        export_hf(path, tmp_path / "twice", names={"b": "c"})


def test_arguments_are_checked_before_anything_is_made(tmp_path: Path) -> None:
    path = waystation.save(tmp_path / "c", {"w": np.ones(1)})
    for size in ("5 apples", "GB", "0GB", 0, -1, "1.5GB"):
        with pytest.raises(Error, match="expected a size"):
            export_hf(path, tmp_path / "hf", max_shard_size=size)
    for config in (tmp_path / "none.json", 5):
        with pytest.raises(Error):
            export_hf(path, tmp_path / "hf", config=config)
    assert not (tmp_path / "hf").exists()
    (tmp_path / "hf").mkdir()
    with pytest.raises(ExistsError):
        export_hf(path, tmp_path / "hf")


def test_export_is_from_whole_checkpoints_only(tmp_path: Path) -> None:
    """Where a consolidation would fill in zeros there is an error, and no directory that could be taken for a model."""
    path = Path(waystation.save(tmp_path / "c", {"w": np.ones(100_000), "v": np.ones(3)}))
    shard = max((file for file in path.iterdir()), key=lambda file: file.stat().st_size)
    lost = Path(shutil.copytree(path, tmp_path / "lost"))
    (lost / shard.name).unlink()
    with pytest.raises(Error) as refused:
        export_hf(lost, tmp_path / "a")
    assert refused.value.code == "file-missing"
    bad = Path(shutil.copytree(path, tmp_path / "bad"))
    data = bytearray((bad / shard.name).read_bytes())
    data[len(data) // 2] ^= 1
    (bad / shard.name).write_bytes(data)
    with pytest.raises(Error) as refused:
        export_hf(bad, tmp_path / "b")
    assert refused.value.code == "crc-mismatch"


def _dcp_parts(folder: Path, state: dict[str, Any], ranks: int) -> None:
    """What DCP's writer for Hugging Face leaves for each of several ranks: rows, and where they begin."""
    from safetensors.torch import save

    for rank in range(ranks):
        mine, offsets = {}, {}
        for name, tensor in state.items():
            rows = tensor.chunk(ranks) if tensor.dim() else (tensor,)
            if rank < len(rows):
                mine[name] = rows[rank].contiguous().clone()
                begin = sum(row.shape[0] for row in rows[:rank]) if tensor.dim() else 0
                offsets[name] = {"saved_offsets": [begin] + [0] * (tensor.dim() - 1) if tensor.dim() else []}
        if not mine:
            continue
        (folder / f"shard-{rank:05d}-model-00001-of-00001.safetensors").write_bytes(
            save(mine, {"DCP_SHARDING_INFO": json.dumps(offsets), "DCP_VERSION": "1.0", "format": "pt"})
        )


def test_what_the_consolidation_of_dcp_loses_is_kept(tmp_path: Path) -> None:
    """A 0-d tensor, integers, and a part that is not there: through DCP's consolidation and through ours."""
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import load_file
    from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files

    state = {
        "scale": torch.tensor(4.6052),
        "count": torch.arange(7),
        "w": torch.arange(6.0).reshape(3, 2) + 1,
        "n": torch.tensor(5),
    }
    dcp.save({"model": state}, checkpoint_id=tmp_path / "dcp", no_dist=True)
    path = import_dcp(tmp_path / "dcp", out=tmp_path / "c", trust_pickle=True).path
    export_hf(path, tmp_path / "ours")
    ours = load_file(tmp_path / "ours/model.safetensors")
    assert {name: (tensor.dtype, tensor.tolist()) for name, tensor in ours.items()} == {
        name: (tensor.dtype, tensor.tolist()) for name, tensor in state.items()
    }

    lossy = []
    for what in ({"scale": state["scale"]}, {"w": state["w"]}, {"count": state["count"]}):
        parts = tmp_path / f"parts-{next(iter(what))}"
        parts.mkdir()
        _dcp_parts(parts, what, 3)
        if "w" in what:
            (parts / "shard-00001-model-00001-of-00001.safetensors").unlink()
        (parts / "out").mkdir()
        try:
            consolidate_safetensors_files(str(parts), str(parts / "out"), fqn_to_index_mapping=dict.fromkeys(what, 1))
            theirs = load_file(next((parts / "out").glob("*.safetensors")))
        except Exception as e:  # noqa: BLE001, whatever it is: it is not the state
            lossy.append(type(e).__name__)
            continue
        name = next(iter(what))
        if not (theirs[name].shape == state[name].shape and torch.equal(theirs[name], state[name])):
            lossy.append(name)
    if not lossy:
        pytest.skip("this PyTorch's consolidation keeps all of these: nothing to be compared with")
    print("lost by DCP's consolidation:", lossy)


def _real_model() -> Path | None:
    told = os.environ.get("WAYSTATION_REAL_MODEL")
    return Path(told) if told and (Path(told) / "model.safetensors").is_file() else None


@pytest.mark.skipif(_real_model() is None, reason="WAYSTATION_REAL_MODEL names no directory with model.safetensors")
def test_a_real_model_makes_the_round_trip(tmp_path: Path) -> None:
    source = _real_model()
    assert source is not None
    made = import_hf(source, run=tmp_path / "run", step=1, writers=3)
    assert waystation.verify(made.path).ok
    export_hf(made.path, tmp_path / "hf", max_shard_size="30MB")
    for file in source.rglob("*"):
        if file.is_file() and file.name != "model.safetensors":
            assert (tmp_path / "hf" / file.relative_to(source)).read_bytes() == file.read_bytes()

    def embeddings(path: Path) -> Any:
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        model = transformers.AutoModel.from_pretrained(path).eval()
        words = tokenizer(["a spot machine goes away", "and the training goes on"], return_tensors="pt", padding=True)
        with torch.no_grad():
            return model(**words).last_hidden_state.mean(1)

    before, after = embeddings(source), embeddings(tmp_path / "hf")
    assert torch.equal(before, after)
    # Loaded without an export, too.
    model = transformers.AutoModel.from_config(transformers.AutoConfig.from_pretrained(source)).eval()
    load_into(model, made.path, strict=False)
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    words = tokenizer(["a spot machine goes away", "and the training goes on"], return_tensors="pt", padding=True)
    with torch.no_grad():
        assert torch.equal(model(**words).last_hidden_state.mean(1), before)
