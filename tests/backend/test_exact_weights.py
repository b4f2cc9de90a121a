"""Of which types of GGUF OpenVINO computes what the weights say, and the copies that make it so of the others."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import openvino as ov
import openvino_genai as genai
import pytest
from backend.llama_reference import logits_of
from backend.tiny_gguf import write_tiny_gguf
from foretype_models.errors import GgufError
from foretype_models.exact_weights import CONVERTED, READ_EXACTLY, TYPES, exact_copy, plan_weights
from foretype_models.gguf_metadata import read_metadata

pytestmark = pytest.mark.engine

CORES = os.sched_getaffinity(0)
"""Asked before OpenVINO has run, which leaves its caller one of them."""

Q = gguf.GGMLQuantizationType
HIDDEN = 256
IDS = np.random.default_rng(1).integers(4, 512, 48).tolist()
EXACT, HALF, EIGHT_BITS = 1e-5, 3e-3, 4e-2
"""Relative error of logits: as floats, through half precision, and through Q8_0's rounding in a random network of two layers."""


def halves(rng: np.random.Generator, blocks: int, low: float, high: float) -> np.ndarray:
    return rng.uniform(low, high, blocks).astype(np.float16).view(np.uint8).reshape(blocks, 2)


def k_blocks(kind: Q) -> Callable[[int, int], np.ndarray]:
    """Random blocks, laid out as llama.cpp's `ggml-common.h` has them, of values around 0."""
    rng = np.random.default_rng(7)

    def made(rows: int, columns: int) -> np.ndarray:
        count, scale = rows * columns // 256, 2 * columns**-0.5

        def random(size: int) -> np.ndarray:
            return rng.integers(0, 256, (count, size), dtype=np.uint8)

        if kind in (Q.Q4_K, Q.Q5_K):
            steps = halves(rng, count, scale / 500, scale / 300)
            middle = 7.5 if kind is Q.Q4_K else 15.5
            least = (steps.view(np.float16).astype(np.float32) * middle).astype(np.float16).view(np.uint8)
            parts = [steps, least, random(12), *([random(32)] if kind is Q.Q5_K else []), random(128)]
        elif kind is Q.Q6_K:
            scales = rng.integers(-60, 60, (count, 16), dtype=np.int8).view(np.uint8)
            parts = [random(128), random(64), scales, halves(rng, count, scale / 1500, scale / 900)]
        elif kind is Q.Q3_K:
            parts = [random(32), random(64), random(12), halves(rng, count, scale / 100, scale / 60)]
        else:
            parts = [random(16), random(64), *(halves(rng, count, scale / 40, scale / 20) for _ in range(2))]
        return np.concatenate(parts, 1).reshape(rows, -1)

    return made


def tiny(folder: Path, kind: Q) -> Path:
    by_hand = kind.name in ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
    return write_tiny_gguf(
        folder / "m.gguf",
        hidden=HIDDEN,
        feed_forward=512,
        quantisation=kind,
        blocks=k_blocks(kind) if by_hand else None,
    )


def engine_logits(path: Path) -> np.ndarray:
    """Of OpenVINO, in floats, from the model that it makes of the file."""
    genai.LLMPipeline(str(path), "CPU", enable_save_ov_model=True)
    floats = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0", "KV_CACHE_PRECISION": "f32"}
    model: Any = ov.Core().compile_model(str(path.parent / "openvino_model.xml"), "CPU", floats)
    inputs = {
        "input_ids": np.array([IDS], np.int64),
        "attention_mask": np.ones((1, len(IDS)), np.int64),
        "position_ids": np.arange(len(IDS), dtype=np.int64)[None],
        "beam_idx": np.zeros(1, np.int32),
    }
    return next(iter(model.create_infer_request().infer(inputs).values()))[0]


def error(got: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.sqrt(((got - wanted) ** 2).mean() / wanted.var()))


@pytest.mark.parametrize("kind", [Q.Q8_0, Q.Q4_0, Q.Q6_K, Q.F16], ids=lambda kind: kind.name)
def test_what_is_read_as_it_is_computes_what_its_weights_say(tmp_path: Path, kind: Q) -> None:
    os.sched_setaffinity(0, CORES)
    if kind is Q.F16 and len(CORES) == 1:
        pytest.skip("OpenVINO GenAI 2026.4.1 does not serve F16 on one core")
    path = tiny(tmp_path, kind)
    assert not plan_weights(path).types
    assert exact_copy(path, tmp_path / "kept") == path and not (tmp_path / "kept").exists()
    assert error(engine_logits(path), logits_of(path, IDS)) < (EXACT if kind in (Q.Q8_0, Q.Q4_0) else HALF)


@pytest.mark.parametrize("kind", [Q.Q4_1, Q.Q4_K], ids=lambda kind: kind.name)
def test_a_type_with_a_minimum_is_another_model_to_openvino(tmp_path: Path, kind: Q) -> None:
    """Why it is not read as it is; where this fails OpenVINO was mended, and the copy is needed no more."""
    path = tiny(tmp_path, kind)
    assert error(engine_logits(path), logits_of(path, IDS)) > 0.2


@pytest.mark.parametrize(
    "kind",
    [Q.Q4_1, Q.Q4_K, Q.Q5_0, Q.Q5_1, Q.Q5_K, Q.Q2_K, Q.Q3_K, Q.BF16, Q.F32],
    ids=lambda kind: kind.name,
)
def test_the_copy_of_any_other_computes_what_the_weights_of_the_file_say(tmp_path: Path, kind: Q) -> None:
    path = tiny(tmp_path, kind)
    plan, told = plan_weights(path), list[tuple[int, int]]()
    assert plan.types == (kind.name,)
    copy = exact_copy(path, tmp_path / "kept", lambda done, total: told.append((done, total)))
    assert not plan_weights(copy).types and told[-1][0] == told[-1][1] > 0
    assert 0 < copy.stat().st_size - plan.bytes < path.stat().st_size  # and its header
    assert error(logits_of(copy, IDS), logits_of(path, IDS)) < EIGHT_BITS
    assert error(engine_logits(copy), logits_of(copy, IDS)) < EXACT
    keys = ("general.architecture", "tokenizer.ggml.tokens", "llama.block_count", "tokenizer.ggml.pre")
    assert read_metadata(copy, keys) == read_metadata(path, keys)
    assert read_metadata(copy, ("general.file_type",)) == {"general.file_type": int(gguf.LlamaFileType.MOSTLY_Q8_0)}


def test_every_type_that_is_converted_can_be(tmp_path: Path) -> None:
    by_name = {name: Q(id) for id, (name, _, _) in TYPES.items()}
    assert not READ_EXACTLY & CONVERTED
    for name in CONVERTED:
        values, size = gguf.GGML_QUANT_SIZES[by_name[name]]
        assert gguf.quants.dequantize(np.zeros((1, size), np.uint8), by_name[name]).shape == (1, values)


def test_the_copy_is_made_once_again_when_the_file_changed_and_only_the_last_are_kept(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    path = tiny(tmp_path, Q.Q4_1)
    first = exact_copy(path, kept)
    inode = first.stat().st_ino
    assert exact_copy(path, kept) == first and first.stat().st_ino == inode
    (kept / "making-abandoned").write_bytes(b"x")
    copies = {first}
    for second in range(1, 5):
        os.utime(path, (second, second))
        copies.add(exact_copy(path, kept))
    assert len(copies) == 5
    assert len(list(kept.glob("*.gguf"))) == 3 and not list(kept.glob("making-a*"))
    assert oct(kept.stat().st_mode & 0o777) == "0o700"


def test_what_cannot_be_kept_or_read_is_one_sentence(tmp_path: Path) -> None:
    path = tiny(tmp_path, Q.Q4_1)
    (tmp_path / "file").write_text("")
    with pytest.raises(GgufError, match=r"m\.gguf: its copy in Q8_0 cannot be kept in .*; make room or .*prepared_dir"):
        exact_copy(path, tmp_path / "file")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1000])
    with pytest.raises(GgufError, match="is truncated; download or copy it again"):
        exact_copy(path, tmp_path / "kept")
    assert not list((tmp_path / "kept").glob("*.gguf"))
    path.write_bytes(b"GGUF")
    with pytest.raises(GgufError, match="cut off or damaged"):
        plan_weights(path)
