"""A GGUF file as other engines load it: the same values, rows of query and key in their order, grammar and layout beside them."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
from foretype_context.tokens.tokenizer import load_tokenizer
from foretype_models import artifacts
from foretype_models.cli import app
from foretype_models.errors import ExportFileError
from foretype_models.export import unpermute, write_folder
from foretype_models.fetch import place
from foretype_models.fetch.gguf_file import read_file
from foretype_models.pull.write import permute
from safetensors.numpy import load_file
from typer.testing import CliRunner

from models import networks


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny network, as `foretype models fetch` makes it."""
    folder = tmp_path_factory.mktemp("made")
    network = networks.write_base(folder / "base.gguf")
    adapter = networks.write_adapter(folder / "a.gguf", network)
    return place.make(adapter, networks.write_wheel(folder, network)[1], folder / "models", network).artifact.path


def test_the_folder_has_the_file_s_own_values_under_their_names(made: Path, tmp_path: Path) -> None:
    write_folder(made, tmp_path / "hf")
    weights, file = load_file(tmp_path / "hf" / "model.safetensors"), read_file(made)
    assert len(weights) == len(file.tensors)
    assert {values.dtype for values in weights.values()} == {np.dtype(np.float32)}
    layer, theirs = "model.layers.1.", "blk.1."
    for name, other in (
        ("mlp.down_proj", "ffn_down"),
        ("self_attn.v_proj", "attn_v"),
        ("input_layernorm", "attn_norm"),
    ):
        assert np.array_equal(weights[f"{layer}{name}.weight"], file.values(f"{theirs}{other}.weight"))
    for name, other, heads in (("q_proj", "attn_q", networks.TINY.heads), ("k_proj", "attn_k", networks.TINY.kv_heads)):
        values = weights[f"{layer}self_attn.{name}.weight"]
        assert np.array_equal(permute(values, heads), file.values(f"{theirs}{other}.weight"))
        assert not np.array_equal(values, file.values(f"{theirs}{other}.weight"))


def test_the_folder_says_what_engines_and_gateways_ask(made: Path, tmp_path: Path) -> None:
    write_folder(made, tmp_path / "hf")
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert [config[key] for key in ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim")] == [
        networks.TINY.layers,
        networks.TINY.heads,
        networks.TINY.kv_heads,
        networks.TINY.width // networks.TINY.heads,
    ]
    assert (config["rope_theta"], config["rms_norm_eps"], config["tie_word_embeddings"]) == (100_000.0, 1e-5, True)
    assert (config["eos_token_id"], config["foretype_grammar"], config["foretype_layout"]) == (16, "foretype-2", "spm")
    tokenizer = load_tokenizer(tmp_path / "hf" / "tokenizer.json")
    assert tokenizer.control("<|fim_middle|>") == 10
    settings = json.loads((tmp_path / "hf" / "tokenizer_config.json").read_text())
    assert settings["eos_token"] == "<|end_of_middle|>"


def test_a_folder_with_other_files_is_never_replaced(made: Path, tmp_path: Path) -> None:
    for _ in range(2):
        write_folder(made, tmp_path / "hf")
    (tmp_path / "hf" / "notes.md").write_text("mine")
    with pytest.raises(ExportFileError, match="name another folder with --out"):
        write_folder(made, tmp_path / "hf")
    assert (tmp_path / "hf" / "notes.md").read_text() == "mine"


def test_the_first_layers_are_a_model_of_their_own(made: Path, tmp_path: Path) -> None:
    write_folder(made, tmp_path / "draft", layers=1)
    assert json.loads((tmp_path / "draft" / "config.json").read_text())["num_hidden_layers"] == 1
    assert not any(".layers.1." in name for name in load_file(tmp_path / "draft" / "model.safetensors"))
    with pytest.raises(ExportFileError, match=r"has 2 layers; a draft takes at least 1 and fewer"):
        write_folder(made, tmp_path / "draft", layers=2)


def test_the_order_of_rows_comes_back() -> None:
    rows = np.arange(32, dtype=np.float32).reshape(16, 2)
    assert np.array_equal(unpermute(permute(rows, 2), 2), rows)


def test_the_shipped_file_becomes_a_folder(tmp_path: Path) -> None:
    shipped = artifacts.locate()
    done = CliRunner().invoke(app, ["export", "--out", str(tmp_path / "hf")])
    assert done.exit_code == 0, done.output
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert (config["foretype_grammar"], config["foretype_layout"]) == (shipped.grammar, shipped.profile["layout"])
    weights = load_file(tmp_path / "hf" / "model.safetensors")
    assert sum(values.size for values in weights.values()) == sum(
        tensor.n_elements for tensor in gguf.GGUFReader(shipped.path).tensors
    )


def test_the_file_itself_goes_where_it_is_wanted(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "network.gguf"
    done = CliRunner().invoke(app, ["export", str(made), "--to", "gguf", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert out.read_bytes() == made.read_bytes()
    assert [path.name for path in out.parent.iterdir()] == ["network.gguf"]


@pytest.mark.parametrize("damage", ["missing", "truncated", "other"])
def test_a_bad_file_is_named_and_nothing_is_written(made: Path, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "m.gguf"
    if damage != "missing":
        path.write_bytes(made.read_bytes()[:5000] if damage == "truncated" else b"PK\3\4" + bytes(200))
    done = CliRunner().invoke(app, ["export", str(path), "--out", str(tmp_path / "hf")])
    assert (done.exit_code, done.stdout) == (1, "")
    assert "m.gguf" in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "hf").exists()


def test_another_form_is_refused(made: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["export", str(made), "--to", "onnx", "--out", str(tmp_path / "x")])
    assert (done.exit_code, done.stderr) == (1, "--to onnx is unknown; there are safetensors and gguf\n")


def test_a_place_that_cannot_be_written_is_one_sentence(made: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = CliRunner().invoke(app, ["export", str(made), "--out", str(tmp_path / "file" / "hf")])
    assert done.exit_code == 1
    assert "cannot be written" in done.stderr and done.stderr.count("\n") == 1


def test_a_layout_that_is_named_goes_before_the_file_s_own(made: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["export", str(made), "--layout", "psm_growing", "--out", str(tmp_path / "hf")])
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["foretype_layout"] == "psm_growing"
