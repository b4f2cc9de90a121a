"""Base and adapter become one exact file; whatever does not fit is one sentence, and nothing is half-written."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from foretype_context.tokens.tokenizer import tokenizer_from_bytes
from foretype_models.errors import FetchError
from foretype_models.fetch.gguf_file import GgufFile, read_file
from foretype_models.fetch.merge import merge, read_adapter
from foretype_models.gguf_tokenizer import tokenizer_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models import networks

_STEP = 0.5 / 127 + 2**-11
"""Q8_0 rounds to half a step of the largest of 32, and the step itself to half precision."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return networks.write_base(tmp_path_factory.mktemp("base") / "base.gguf")


def merged(base: Path, adapter: Path, target: Path) -> GgufFile:
    merge(base, read_adapter(adapter), "ab" * 32, target)
    return read_file(target)


def test_a_product_is_added_to_its_matrix_and_the_rest_stays(base: Path, tmp_path: Path) -> None:
    adapter = networks.write_adapter(tmp_path / "a.gguf", base)
    made, before, change = merged(base, adapter, tmp_path / "m.gguf"), read_file(base), read_file(adapter)
    assert list(made.tensors) == list(before.tensors)
    for name in before.tensors:
        expected = before.values(name)
        if f"{name}.lora_a" in change.tensors:
            expected = expected + 64 / 32 * change.values(f"{name}.lora_b") @ change.values(f"{name}.lora_a")
            assert np.abs(expected - before.values(name)).max() > 0.01
        if name == "token_embd.weight":
            expected = expected.copy()
            expected[list(networks.CONTROLS)] = change.values(f"{name}.rows")
        if expected.ndim == 1:
            assert np.array_equal(made.values(name), expected)
            continue
        groups = np.abs(expected).reshape(-1, 32).max(1, keepdims=True)
        off = np.abs(made.values(name) - expected).reshape(-1, 32)
        assert (off <= groups * _STEP + 1e-7).all(), name
    assert {tensor.kind for tensor in made.tensors.values()} == {
        gguf.GGMLQuantizationType.F32,
        gguf.GGMLQuantizationType.Q8_0,
    }
    kept = [row for row in range(before.tensors["token_embd.weight"].shape[0]) if row not in networks.CONTROLS]
    assert np.array_equal(made.raw("token_embd.weight")[kept], before.raw("token_embd.weight")[kept])


def test_other_engines_find_the_hole_and_the_end_in_the_metadata(base: Path, tmp_path: Path) -> None:
    adapter = networks.write_adapter(tmp_path / "a.gguf", base)
    made = merged(base, adapter, tmp_path / "m.gguf")
    ids = {
        name: made.says(f"tokenizer.ggml.{name}_token_id") for name in ("fim_pre", "fim_suf", "fim_mid", "eos", "bos")
    }
    assert ids == {"fim_pre": 8, "fim_suf": 9, "fim_mid": 10, "eos": 16, "bos": 1}
    tokens, types = made.says("tokenizer.ggml.tokens"), made.says("tokenizer.ggml.token_type")
    assert {at: tokens[at] for at in networks.CONTROLS} == networks.CONTROLS
    assert all(types[at] == gguf.TokenType.CONTROL for at in networks.CONTROLS)
    assert made.says("tokenizer.chat_template") is None
    assert [made.says(f"foretype.{key}") for key in ("grammar", "layout", "trained_tokens", "adapter_sha256")] == [
        "foretype-2",
        "spm",
        1_000_000,
        "ab" * 32,
    ]
    assert made.says("general.name") == "foretype-tiny"
    assert made.says("general.base_model.0.name") == "Tiny base"
    reader = gguf.GGUFReader(tmp_path / "m.gguf")
    assert int(reader.fields["general.file_type"].contents()) == gguf.LlamaFileType.MOSTLY_Q8_0


def test_its_tokenizer_knows_our_control_tokens_and_splits_digits(base: Path, tmp_path: Path) -> None:
    made = merged(base, networks.write_adapter(tmp_path / "a.gguf", base), tmp_path / "m.gguf")
    tokenizer = tokenizer_from_bytes(tokenizer_of(made.path))
    assert [tokenizer.control(token) for token in networks.CONTROLS.values()] == list(networks.CONTROLS)
    numbers = tokenizer.encode("x = 1234")
    assert [made.says("tokenizer.ggml.tokens")[at] for at in numbers][-5:] == ["Ġ", "1", "2", "3", "4"]


def test_an_adapter_of_zeros_leaves_what_the_base_says(base: Path, tmp_path: Path) -> None:
    adapter = networks.write_adapter(tmp_path / "a.gguf", base, size=0.0)
    made, before = merged(base, adapter, tmp_path / "m.gguf"), read_file(base)
    name = "blk.1.ffn_down.weight"
    kind = gguf.GGMLQuantizationType.Q8_0
    assert np.array_equal(made.raw(name), gguf.quants.quantize(before.values(name), kind))


def test_a_norm_of_the_adapter_replaces_the_base_s(base: Path, tmp_path: Path) -> None:
    norm = np.linspace(0.5, 2, networks.TINY.width, dtype=np.float32)
    adapter = networks.write_adapter(tmp_path / "a.gguf", base, more={"output_norm.weight": norm})
    assert np.array_equal(merged(base, adapter, tmp_path / "m.gguf").values("output_norm.weight"), norm)


def test_the_same_two_files_make_the_same_file(base: Path, tmp_path: Path) -> None:
    adapter = networks.write_adapter(tmp_path / "a.gguf", base)
    first, second = tmp_path / "m.gguf", tmp_path / "n.gguf"
    merged(base, adapter, first)
    merged(base, adapter, second)
    assert first.read_bytes() == second.read_bytes()


Q = "blk.0.attn_q.weight"
ROWS = "token_embd.weight.rows"
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"leave_out": [f"{Q}.lora_b"]}, r"lora_a' has no second half"),
    ({"leave_out": [f"{Q}.lora_a"]}, r"lora_b' has no second half"),
    (
        {"more": {f"{Q}.lora_b": np.zeros((32, 32))}},
        r"attn_q.weight.lora_b' has the shape \(32, 32\), the base asks for",
    ),
    (
        {"more": {f"{Q}.lora_a": np.zeros((32, 96))}},
        r"attn_q.weight.lora_a' has the shape \(32, 96\), the base asks for",
    ),
    ({"more": {f"{Q}.lora_a": np.zeros((64, 64))}}, r"ranks \[32, 64\]"),
    ({"more": {"blk.7.attn_q.weight.lora_a": np.zeros((32, 64))}}, r"blk\.7.* the base does not have"),
    ({"more": {"output_norm.weight": np.zeros(32)}}, r"output_norm.weight' has the shape \(32,\)"),
    ({"more": {"output_norm.weight": np.full(64, np.nan)}}, r"output_norm.weight' gets values that are not finite"),
    ({"more": {ROWS: np.full((7, 64), np.inf)}}, r"token_embd.weight' gets values that are not finite"),
    ({"adapter__lora__alpha": 1e38}, r"gets values that Q8_0 cannot hold"),
    ({"more": {ROWS: np.zeros((6, 64))}}, r"rows' has the shape \(6, 64\)"),
    ({"more": {"blk.0.ffn_up.weight.rows": np.zeros((7, 64))}}, r"ffn_up.weight.rows' has the shape"),
    ({"general__type": "model"}, r"is no adapter \(general.type is 'model'\)"),
    ({"leave_out": ["general.name"]}, r"general.name is missing"),
    ({"leave_out": ["foretype.trained_tokens"]}, r"foretype.trained_tokens is missing"),
    ({"adapter__lora__alpha": "64"}, r"adapter.lora.alpha is of another type"),
    ({"adapter__lora__alpha": float("nan")}, r"adapter.lora.alpha is nan"),
    ({"foretype__control__ids": [3, 5]}, r"do not go together"),
    ({"foretype__control__ids": [3, 5, 8, 9, 10, 11, 11]}, r"do not go together"),
    ({"foretype__control__ids": [3, 5, 8, 9, 10, 11, 99_999]}, r"has 99999, the base has 2\d\d tokens"),
    ({"foretype__control__tokens": ["a", "b", "c", "d", "e", "f", "g"]}, r"lacks '<\|fim_prefix\|>'"),
]


@pytest.mark.parametrize(("changed", "sentence"), WRONG, ids=[sentence[:40] for _, sentence in WRONG])
def test_an_adapter_that_does_not_fit_is_one_sentence(
    base: Path, tmp_path: Path, changed: dict[str, Any], sentence: str
) -> None:
    path = networks.write_adapter(tmp_path / "a.gguf", base, **changed)
    with pytest.raises(FetchError, match=sentence) as caught:
        merged(base, path, tmp_path / "m.gguf")
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_control_token_that_the_base_has_elsewhere_is_refused(base: Path, tmp_path: Path) -> None:
    tokens = [*[*networks.CONTROLS.values()][:-2], "<gh_stars>", "<|end_of_middle|>"]
    path = networks.write_adapter(tmp_path / "a.gguf", base, foretype__control__tokens=tokens)
    with pytest.raises(FetchError, match=r"<gh_stars>' is a token of the base at another id"):
        merged(base, path, tmp_path / "m.gguf")


def test_a_name_with_a_line_end_in_it_is_told_in_one_line(base: Path, tmp_path: Path) -> None:
    adapter = networks.write_adapter(tmp_path / "a.gguf", base)
    adapter.write_bytes(adapter.read_bytes().replace(b"blk.1.ffn_gate", b"\nlk.1.ffn_gate"))
    with pytest.raises(FetchError, match="changes a tensor that the base does not have") as told:
        merged(base, adapter, tmp_path / "m.gguf")
    assert "\n" not in str(told.value)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_a_sentence_or_a_whole_merge(base: Path, tmp_path: Path, data: st.DataObject) -> None:
    adapter, target = tmp_path / "a.gguf", tmp_path / "m.gguf"
    whole = networks.write_adapter(adapter, base).read_bytes()
    which = data.draw(st.sampled_from(["adapter", "base"]))
    raw = bytearray(whole if which == "adapter" else base.read_bytes())
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(0, len(raw) - 1)) :]
    else:
        at = data.draw(st.integers(0, 8_000 if which == "adapter" else 12_000))
        raw[at : at + 4] = data.draw(st.binary(min_size=4, max_size=4))
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(raw)
    target.unlink(missing_ok=True)
    pair = (base, damaged) if which == "adapter" else (damaged, adapter)
    try:
        merged(*pair, target)
    except FetchError as error:
        assert "\n" not in str(error)
        assert str(damaged) in str(error) or str(adapter) in str(error)
