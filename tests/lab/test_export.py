import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from foretype_lab.model_files import export, gguf_file
from foretype_lab.training import tokenizer
from foretype_models import artifacts

CONFIG: dict[str, Any] = {
    "vocabulary": 16_384,
    "width": 64,
    "layers": 2,
    "heads": 2,
    "kv_heads": 1,
    "head_width": 32,
    "feed_forward": 96,
    "rope_base": 50_000.0,
    "max_position": 8_192,
    "norm_epsilon": 1e-5,
}


def make_weights() -> dict[str, export.Matrix]:
    draw = np.random.default_rng(1)
    width, kv, inner = 64, 32, 96
    shapes = {"model.embed_tokens.weight": (16_384, width), "model.norm.weight": (width,)}
    for layer in range(2):
        prefix = f"model.layers.{layer}."
        shapes |= {
            prefix + "input_layernorm.weight": (width,),
            prefix + "post_attention_layernorm.weight": (width,),
            prefix + "self_attn.q_proj.weight": (width, width),
            prefix + "self_attn.k_proj.weight": (kv, width),
            prefix + "self_attn.v_proj.weight": (kv, width),
            prefix + "self_attn.o_proj.weight": (width, width),
            prefix + "mlp.gate_proj.weight": (inner, width),
            prefix + "mlp.up_proj.weight": (inner, width),
            prefix + "mlp.down_proj.weight": (width, inner),
        }
    return {name: draw.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture(scope="module")
def weights() -> dict[str, export.Matrix]:
    return make_weights()


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, weights: dict[str, export.Matrix], tokenizer_path: Path) -> Path:
    target = tmp_path_factory.mktemp("exported") / "m.gguf"
    export.write_gguf(weights, CONFIG, tokenizer_path, "m", "1", target)
    return target


@pytest.fixture(scope="module")
def reader(exported: Path) -> gguf.GGUFReader:
    return gguf.GGUFReader(exported)


@pytest.fixture
def written(tmp_path: Path, exported: Path) -> Path:
    """A file that a test may change."""
    return Path(shutil.copy(exported, tmp_path))


def field(reader: gguf.GGUFReader, key: str) -> Any:
    found = reader.get_field(key)
    assert found is not None, key
    return found.contents()


def test_weights_come_back_within_the_step_of_q8(exported: Path, weights: dict[str, export.Matrix]) -> None:
    back = gguf_file.read_weights(exported, CONFIG)
    assert set(back) == set(weights)
    for name, value in weights.items():
        step = 0 if value.ndim == 1 else np.abs(value).max() / 127
        assert back[name].shape == value.shape
        assert np.abs(back[name] - value).max() <= step, name


def test_the_permutation_turns_halves_into_neighbours() -> None:
    rows = np.arange(8, dtype=np.float32)[:, None]
    assert export.permute(rows, 1)[:, 0].tolist() == [0, 4, 1, 5, 2, 6, 3, 7]
    assert export.permute(rows, 2)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert gguf_file.unpermute(export.permute(rows, 2), 2).tolist() == rows.tolist()


@pytest.mark.slow
def test_the_header_says_what_engines_ask(reader: gguf.GGUFReader) -> None:
    assert field(reader, "general.architecture") == "llama"
    assert field(reader, "foretype.grammar") == "foretype-2", "what rows are made in today"
    assert field(reader, "llama.context_length") == 8192
    assert field(reader, "llama.attention.head_count_kv") == 1
    assert field(reader, "tokenizer.ggml.model") == "gpt2"
    assert field(reader, "tokenizer.ggml.pre") == "qwen2"
    assert len(field(reader, "tokenizer.ggml.tokens")) == 16_384
    for key, token in {
        "eos": "<|endoftext|>",
        "eot": "<|end_of_middle|>",
        "fim_pre": "<|fim_prefix|>",
        "fim_suf": "<|fim_suffix|>",
        "fim_mid": "<|fim_middle|>",
        "fim_pad": "<|fim_pad|>",
        "fim_rep": "<|repo_name|>",
        "fim_sep": "<|file_sep|>",
    }.items():
        number = field(reader, f"tokenizer.ggml.{key}_token_id")
        assert number == tokenizer.SPECIAL_IDS[token]
        assert field(reader, "tokenizer.ggml.tokens")[number] == token
    kinds = field(reader, "tokenizer.ggml.token_type")
    assert kinds[-9:] == [gguf.TokenType.CONTROL] * 9
    assert set(kinds[:-9]) == {gguf.TokenType.NORMAL}


def test_every_tensor_has_a_type_that_all_engines_open(reader: gguf.GGUFReader) -> None:
    for tensor in reader.tensors:
        matrix = len(tensor.shape) == 2
        expected = gguf.GGMLQuantizationType.Q8_0 if matrix else gguf.GGMLQuantizationType.F32
        assert tensor.tensor_type == expected, tensor.name


def test_a_failed_export_leaves_the_file_before_it(
    written: Path, weights: dict[str, export.Matrix], tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = written.read_bytes()

    def full(_self: gguf.GGUFWriter, **_options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gguf.GGUFWriter, "write_tensors_to_file", full)
    with pytest.raises(OSError, match="No space"):
        export.write_gguf(weights, CONFIG, tokenizer_path, "m", "2", written)
    assert written.read_bytes() == before
    assert [path.name for path in written.parent.iterdir()] == [written.name]


def test_weights_that_are_not_finite_are_refused_by_name(
    tmp_path: Path, weights: dict[str, export.Matrix], tokenizer_path: Path
) -> None:
    broken = {**weights, "model.norm.weight": np.full(64, np.nan, dtype=np.float32)}
    with pytest.raises(export.ExportError, match=r"model\.norm\.weight"):
        export.write_gguf(broken, CONFIG, tokenizer_path, "m", "1", tmp_path / "m.gguf")
    assert list(tmp_path.iterdir()) == []


def test_another_architecture_and_another_tokenizer_are_refused(
    tmp_path: Path, weights: dict[str, export.Matrix], tokenizer_path: Path
) -> None:
    fewer = {name: value for name, value in weights.items() if "q_proj" not in name}
    with pytest.raises(export.ExportError, match="another architecture"):
        export.write_gguf(fewer, CONFIG, tokenizer_path, "m", "1", tmp_path / "m.gguf")
    with pytest.raises(export.ExportError, match="has 16384 entries"):
        export.write_gguf(weights, {**CONFIG, "vocabulary": 32_000}, tokenizer_path, "m", "1", tmp_path / "m.gguf")
    (tmp_path / "t.json").write_text('{"model": {"vocab": {}, "merges": []}, "added_tokens": []}')
    with pytest.raises(export.ExportError, match=r"t\.json is not the tokenizer"):
        export.write_gguf(weights, CONFIG, tmp_path / "t.json", "m", "1", tmp_path / "m.gguf")


def test_the_index_describes_the_files_beside_it(written: Path, tokenizer_path: Path) -> None:
    folder = written.parent
    (folder / "tokenizer.json").write_bytes(tokenizer_path.read_bytes())
    export.write_index(folder, "m", written.name, 12, 34, "1")
    model = artifacts.locate(folder=folder)
    assert (model.name, model.path, model.parameters, model.trained_tokens) == ("m", written, 12, 34)


def test_a_layout_that_is_named_goes_into_the_entry_and_one_that_the_grammar_lacks_is_refused(
    tmp_path: Path, weights: dict[str, export.Matrix], tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tokenizer.json").write_bytes(tokenizer_path.read_bytes())
    read = export.Checkpoint(weights, CONFIG, {}, {"tokens": 7})

    def checkpoint(_path: Path) -> export.Checkpoint:
        return read

    monkeypatch.setattr(export, "read_checkpoint", checkpoint)
    export.export_shipped(Path("last.pt"), tmp_path, "m", "1", layout="spm")
    assert dict(artifacts.locate(folder=tmp_path).profile) == {"layout": "spm"}
    with pytest.raises(export.ExportError, match=r"--layout: .copilot. is not one of .* of foretype-2"):
        export.export_shipped(Path("last.pt"), tmp_path, "m", "2", layout="copilot")
    export.export_shipped(Path("last.pt"), tmp_path, "m", "2")
    assert not artifacts.locate(folder=tmp_path).profile


@pytest.mark.slow
def test_the_shipped_file_has_the_shape_that_its_index_says() -> None:
    model = artifacts.locate()
    reader = gguf.GGUFReader(model.path)
    weights = sum(int(np.prod(tensor.shape)) for tensor in reader.tensors)
    assert weights == model.parameters
    assert field(reader, "foretype.grammar") == model.grammar
    names = field(reader, "tokenizer.ggml.tokens")
    data = json.loads(model.tokenizer_path.read_text("utf-8"))
    assert all(names[number] == token for token, number in data["model"]["vocab"].items())


@pytest.mark.slow
def test_a_new_version_replaces_its_role_and_leaves_the_other(
    tmp_path: Path, weights: dict[str, export.Matrix], tokenizer_path: Path
) -> None:
    (tmp_path / "tokenizer.json").write_bytes(tokenizer_path.read_bytes())
    for name, role in (("old", "target"), ("small", "draft"), ("new", "target"), ("smaller", "draft")):
        export.write_gguf(weights, CONFIG, tmp_path / "tokenizer.json", name, "1", tmp_path / f"{name}.gguf")
        export.write_index(tmp_path, name, f"{name}.gguf", 1, 1, "1", role)
    assert [model.name for model in artifacts.verify(tmp_path)] == ["new", "smaller"]
    assert sorted(path.name for path in tmp_path.glob("*.gguf")) == ["new.gguf", "smaller.gguf"]
    assert artifacts.locate(folder=tmp_path).name == "new"


def test_what_else_ships_keeps_its_entry_when_a_new_version_comes(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "m.gguf").write_bytes(b"weights")
    others = {"embedder": {"file": "e.npz"}, "table": {"file": "t.ftt"}}
    (tmp_path / "index.json").write_text(json.dumps({"default": "old", "models": [], **others}))
    export.write_index(tmp_path, "m", "m.gguf", 1, 1, "1")
    index = json.loads((tmp_path / "index.json").read_text())
    assert {name: index[name] for name in others} == others
    assert index["default"] == "m"


def test_a_disk_that_is_full_at_the_index_leaves_the_model_before_usable(
    tmp_path: Path, weights: dict[str, export.Matrix], tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tokenizer.json").write_bytes(tokenizer_path.read_bytes())
    progress = {"tokens": 7}

    def checkpoint_of(scale: float) -> Callable[[Path], export.Checkpoint]:
        return lambda _: export.Checkpoint({k: v * np.float32(scale) for k, v in weights.items()}, CONFIG, {}, progress)

    monkeypatch.setattr(export, "read_checkpoint", checkpoint_of(1))
    export.export_shipped(Path("last.pt"), tmp_path, "m", "1")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(path: Path, *_: Any, **__: Any) -> int:
        path.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export, "read_checkpoint", checkpoint_of(2))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", full)
        with pytest.raises(OSError, match="No space"):
            export.export_shipped(Path("last.pt"), tmp_path, "m", "2")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert [model.version for model in artifacts.verify(tmp_path)] == ["1"]
    export.export_shipped(Path("last.pt"), tmp_path, "m", "2")
    assert [model.version for model in artifacts.verify(tmp_path)] == ["2"]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"no archive at all"])
def test_a_checkpoint_that_was_cut_off_is_named_with_the_remedy(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("torch")
    (tmp_path / "last.pt").write_bytes(content)
    with pytest.raises(export.ExportError, match=r"(?s)last\.pt is no readable checkpoint.*use the one before"):
        export.read_checkpoint(tmp_path / "last.pt")


@pytest.mark.slow
def test_the_draft_that_does_not_ship_is_whole_and_reads_as_the_model_does(tmp_path: Path) -> None:
    (draft,) = artifacts.verify(Path(__file__).parents[2] / "lab" / "artifacts")
    assert draft.tokenizer_sha256 == artifacts.locate().tokenizer_sha256, "a draft of other tokens guesses noise"
    config = gguf_file.read_config(draft.path)
    grammar_id = gguf_file.read_grammar(draft.path)
    weights = gguf_file.read_weights(draft.path, config)
    export.write_safetensors(weights, config, draft.tokenizer_path, tmp_path / "draft", grammar_id=grammar_id)
    written = json.loads((tmp_path / "draft" / "config.json").read_text())
    assert written["foretype_grammar"] == "foretype-1", (
        "weights of another training keep the grammar they were trained in"
    )
    assert written["vocab_size"] == gguf_file.read_config(artifacts.locate().path)["vocabulary"]
