"""The comparison itself, the real engines where they are installed, and what is said where they are not."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foretype_lab import model_commands
from foretype_lab.errors import LlamaServerError, VllmError
from foretype_lab.model_files import export, gguf_file
from foretype_lab.other_engines.llama_server import LlamaServer, find_llama_server
from foretype_lab.other_engines.vllm_engine import VllmProcess, find_vllm
from foretype_lab.quality import engine_parity
from foretype_models import artifacts
from typer.testing import CliRunner

runner = CliRunner()


def test_the_shape_of_the_shipped_model_is_in_its_file() -> None:
    model = artifacts.locate()
    config = gguf_file.read_config(model.path)
    weights = gguf_file.read_weights(model.path, config)
    assert sum(value.size for value in weights.values()) == model.parameters
    assert set(weights) == set(export.gguf_names(config["layers"]))
    assert config["rope_base"] >= 10_000 and config["norm_epsilon"] == 1e-5


def test_the_shipped_file_becomes_a_folder_for_vllm(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    model = artifacts.locate()
    out = tmp_path / "hf"
    done = runner.invoke(model_commands.app, ["export", str(model.path), "--to", "safetensors", "--out", str(out)])
    assert done.exit_code == 0, done.output
    config = json.loads((out / "config.json").read_text())
    assert config["model_type"] == "llama" and config["tie_word_embeddings"]
    weights = load_file(out / "model.safetensors")
    assert weights["model.embed_tokens.weight"].shape == (config["vocab_size"], config["hidden_size"])
    assert {path.name for path in out.iterdir()} >= {"tokenizer.json", "tokenizer_config.json"}


@pytest.mark.parametrize("damage", ["missing", "truncated", "other"])
def test_a_bad_file_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "m.gguf"
    if damage == "truncated":
        path.write_bytes(artifacts.locate().path.read_bytes()[:200])
    elif damage == "other":
        path.write_bytes(b"PK\3\4" + bytes(200))
    done = runner.invoke(
        model_commands.app, ["export", str(path), "--to", "safetensors", "--out", str(tmp_path / "hf")]
    )
    assert done.exit_code == 1
    assert "m.gguf" in done.output and not (tmp_path / "hf").exists()


@pytest.mark.parametrize(
    ("agreement", "difference", "passed"), [(0.98, 0.05, True), (0.979, 0.01, False), (0.99, 0.051, False)]
)
def test_the_verdict(agreement: float, difference: float, passed: bool) -> None:
    assert engine_parity.verdict({"top1_agreement": agreement, "mean_abs_logprob": difference}) is passed


def test_an_unknown_engine_is_refused(tmp_path: Path) -> None:
    done = runner.invoke(model_commands.app, ["parity", "--engine", "sglang", "--store", str(tmp_path)])
    assert done.exit_code == 1 and "openvino, llamacpp, vllm" in done.output


def test_an_engine_that_is_not_there_is_said_with_its_make_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORETYPE_LLAMA_SERVER", str(tmp_path / "none"))
    monkeypatch.setenv("FORETYPE_VLLM_PYTHON", str(tmp_path / "none"))
    with pytest.raises(LlamaServerError, match="make peer-env"):
        LlamaServer(tmp_path / "m.gguf", threads=1)
    with pytest.raises(VllmError, match="make vllm-env"):
        VllmProcess(tmp_path)


def test_a_server_that_dies_at_start_leaves_its_last_words(tmp_path: Path) -> None:
    binary = tmp_path / "llama-server"
    binary.write_text("#!/bin/sh\necho no such model; exit 3\n")
    binary.chmod(0o755)
    with pytest.raises(LlamaServerError, match="no such model"), LlamaServer(tmp_path / "m", threads=1, binary=binary):
        pass


def _vllm_answering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> VllmProcess:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{body}\n")
    python.chmod(0o755)
    monkeypatch.setenv("FORETYPE_VLLM_PYTHON", str(python))
    return VllmProcess(tmp_path)


@pytest.mark.parametrize("body", ["exit 1", "echo ValueError: too small >&2; read line; exit 1"])
def test_a_vllm_that_ends_is_no_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    with pytest.raises(VllmError, match=r"ended during open") as caught, _vllm_answering(tmp_path, monkeypatch, body):
        pass
    assert "read" not in body or "too small" in str(caught.value)


def _prompts() -> list[list[int]]:
    draw = np.random.default_rng(3)
    return [[int(token) for token in draw.integers(0, 16_000, size)] for size in (24, 40)]


def _reference(model: Path, ids: Sequence[int]) -> np.ndarray[Any, Any]:
    from foretype_lab.quality.parity import log_softmax, transformers_logits

    config = gguf_file.read_config(model)
    return log_softmax(transformers_logits(gguf_file.read_weights(model, config), config, ids))


def test_a_difference_is_seen() -> None:
    pytest.importorskip("transformers")
    path = artifacts.locate().path

    def shifted(ids: Sequence[int]) -> engine_parity.Opinion:
        reference = _reference(path, ids)[:-1]
        told = reference[np.arange(len(ids) - 1), ids[1:]] + 0.25
        told[0] = np.nan
        first = [int(token) for token in reference.argmax(-1)]
        first[0], first[1] = -1, (first[1] + 1) % 16_000
        return engine_parity.Opinion(list(ids), told, first)

    result = engine_parity.compare(shifted, path, _prompts())
    positions = 23 + 39
    assert result["positions"] == positions and result["top1_positions"] == positions - 2
    assert result["mean_abs_logprob"] == pytest.approx(0.25, abs=1e-4)
    assert result["top1_agreement"] == pytest.approx(1 - 2 / (positions - 2), abs=1e-4)
    assert result["logprob_share"] == pytest.approx(1 - 2 / positions, abs=1e-4)


@pytest.mark.train
@pytest.mark.parametrize("engine", list(engine_parity.Engine))
def test_each_engine_reads_the_shipped_file(engine: engine_parity.Engine) -> None:
    pytest.importorskip("transformers")
    try:
        if engine is engine_parity.Engine.LLAMACPP:
            find_llama_server()
        elif engine is engine_parity.Engine.VLLM:
            find_vllm()
    except (LlamaServerError, VllmError) as error:
        pytest.skip(str(error))
    model = artifacts.locate()
    with engine_parity.opened(engine, model.path, model.tokenizer_path) as (score, _):
        result = engine_parity.compare(score, model.path, _prompts())
    # Random tokens are the hardest text there is: nothing is likely, so first choices are close calls.
    assert result["mean_abs_logprob"] < 0.1 and result["top1_agreement"] > 0.8, result
