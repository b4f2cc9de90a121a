"""What `make gpu-campaign` does without vLLM and without a GPU: pieces, steps by what time is left, the planner beside figures."""

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("deploy/gpu", "lab/gpu"):
        monkeypatch.syspath_prepend(str(ROOT / folder))


@pytest.fixture
def pieces() -> Any:
    import pieces

    return pieces


def carried(pieces: Any, folder: Path) -> Path:
    for name, size in (("base.gguf", 25), ("store.tar.xz", 10)):
        (folder / name).write_bytes(bytes(range(size)))
    pieces.cut([folder / "store.tar.xz", folder / "base.gguf"], folder / "all", 10)
    return folder / "all"


def test_pieces_that_come_one_by_one_make_the_file(pieces: Any, tmp_path: Path) -> None:
    come, state = carried(pieces, tmp_path), tmp_path / "state"
    manifest = json.loads((come / "manifest.json").read_text())
    assert pieces.loads(manifest, 15) == [["store.tar.xz.00", "base.gguf.02"], ["base.gguf.00"], ["base.gguf.01"]]
    late = (come / "base.gguf.01").read_bytes()
    (come / "base.gguf.01").unlink()
    assert pieces.take(come, state) == {"store.tar.xz": [], "base.gguf": ["base.gguf.01 has not come"]}
    for one in come.iterdir():
        one.unlink()
    (come / "base.gguf.01").write_bytes(late)
    assert pieces.take(come, state)["base.gguf"] == []
    assert (state / "base.gguf").read_bytes() == (tmp_path / "base.gguf").read_bytes()
    assert pieces.take(tmp_path / "nothing", state) == {"store.tar.xz": [], "base.gguf": []}


def test_what_is_wrong_with_what_came_is_said(pieces: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    come, state = carried(pieces, tmp_path), tmp_path / "state"
    with pytest.raises(pieces.CarryError, match=r"manifest\.json: not there"):
        pieces.take(tmp_path / "nothing", state)
    (come / "store.tar.xz.00").write_bytes(b"damaged")
    assert "carry it again" in pieces.take(come, state)["store.tar.xz"][0]
    monkeypatch.setattr(pieces, "ROOM_BYTES", 1 << 60)
    with pytest.raises(pieces.CarryError, match="MiB are free"):
        pieces.take(come, tmp_path / "other")
    (come / "manifest.json").write_text("{")
    with pytest.raises(pieces.CarryError, match="no manifest"):
        pieces.take(come, state)


def test_the_first_step_that_fits_is_done_and_the_others_say_why_not() -> None:
    from steps import STEPS, choose, toy

    here: dict[str, list[str]] = {"small.tar": [], "vllm.tar": [], "base.gguf": [], "store.tar.xz": []}
    step, passed = choose(STEPS, {}, here, 500)
    assert step is not None and step.name == "train" and not passed
    rows = tuple(one for one in STEPS if one.row)
    step, passed = choose(rows, {"bf16": {"done": True}, "fp8": {"tries": 2}}, here, 100)
    assert step is not None and step.name == "ngram" and passed == {"fp8": "was begun 2 times and did not end"}
    step, passed = choose(STEPS, {}, here | {"vllm.tar": ["vllm.tar.03 has not come"]}, 500)
    assert step is not None and step.name == "train"  # vLLM is no need of it
    step, passed = choose(rows, {}, here | {"vllm.tar": ["vllm.tar.03 has not come"]}, 500)
    assert step is None and set(passed.values()) == {"vllm.tar.03 has not come"}
    step, passed = choose(rows, {"fp8": {"done": True, "failed": "no such option"}}, here, 10)
    assert step is None and passed["bf16"] == "needs 120 s, and 10 s were left" and passed["fp8"] == "no such option"
    trained = {one.name: {"done": True} for one in STEPS if one.row} | {"train": {"tries": 9, "done": False}}
    step, _ = choose(STEPS, trained, here, 200)
    assert step is not None and step.name == "train"  # it goes on in every call
    assert [one.name for one in toy()] == [one.name for one in STEPS] and toy()[1].row == "float32"


def test_a_constant_that_a_measurement_moves_is_named(tmp_path: Path) -> None:
    from beside import beside, card_of, moved
    from shapes import write_shape

    assert card_of("NVIDIA H200") == "h200" and card_of("NVIDIA A100-SXM4-80GB") == "a100" and card_of("other") is None
    shape = write_shape("7b", tmp_path) / "config.json"
    cold = {"n": 9, "p50_ms": 100.0}
    ttft = {"1": {"cold": cold, "warm": {"n": 9, "p50_ms": 9.0}, "warm_cached_share": 1.0, "prompt_tokens": 2000}}
    decode = {"8": {"n": 16, "p50_ms": 5.0, "tokens_per_step": 1.0, "prompt_tokens": 2000, "output_tokens": 128}}
    host = {"n": 9, "p50_ms": 12.0, "cached_share": 0.99, "prompt_tokens": 2000}
    rows = {"bf16": {"ttft": ttft, "decode": decode}, "host tier": {"host_tier": host}, "int8": {"failed": "no"}}
    made = beside(rows, "h200", shape)
    by_name = {one["what"]: one for one in made}
    first = by_name["bf16: cold first token, 2,000 tokens"]
    assert 45 < first["predicted_ms"] < 60 and first["ratio"] == pytest.approx(first["predicted_ms"] / 100, abs=0.001)
    assert 0.3 < first["would_be"] < 0.36
    token = by_name["bf16: a token, 8 sequences"]
    assert 4 < token["predicted_ms"] < 5.5
    found = moved(made)
    assert "prefill_efficiency" in found and "HOST_BYTES_PER_S" in found and "decode_efficiency" not in found
