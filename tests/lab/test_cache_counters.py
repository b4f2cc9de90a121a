"""The comparison with a stand-in that counts wrongly, and a short replay on the real vLLM."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from foretype_backend.engines.embedded.shadow_cache import ShadowPrefixCache
from foretype_context.prompt.profile import Profile
from foretype_context.text.document import Edit
from foretype_context.tokens.tokenizer import load_tokenizer
from foretype_eval.replay.edit_events import Changed, Event, Loaded, Moved, Recording
from foretype_lab.cache_counters.compare import compare, prompts_of, summary
from foretype_lab.commands import bench
from foretype_lab.prefill.asking_moments import moments_of
from foretype_models.artifacts import locate
from typer.testing import CliRunner


class Counting:
    """A cache of another block size than the one it is compared with."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._cache = ShadowPrefixCache(1 << 16, block_tokens)

    def cached_tokens(self, ids: Sequence[int]) -> int:
        return self._cache.insert(self._cache.keys(ids), len(ids))

    def forget(self) -> None:
        self._cache = ShadowPrefixCache(1 << 16, self._block_tokens)


PROMPTS = [list(range(100)), list(range(115)), [7, *range(115)], list(range(120))]


def test_equal_caches_agree() -> None:
    result = summary(compare(PROMPTS, Counting(32), block_tokens=32))
    assert result["requests"] == 4 and result["agreement"] == 1.0 and result["largest_difference"] == 0
    assert result["cached_tokens_counted"] == result["cached_tokens_simulated"] == 96 + 96


def test_a_difference_is_counted_where_it_is() -> None:
    result = summary(compare(PROMPTS, Counting(16), block_tokens=32))
    # 112 tokens are cached in blocks of 16 where blocks of 32 hold 96.
    assert result["differences"] == {"0": 3, "16": 1}
    assert result["agreement"] == 0.75 and result["largest_difference"] == 16


def test_what_an_engine_held_before_does_not_count() -> None:
    engine = Counting(32)
    engine.cached_tokens(PROMPTS[0])
    assert summary(compare(PROMPTS[:1], engine, block_tokens=32))["cached_tokens_counted"] == 0


def session() -> Recording:
    text = "".join(f"value_{number} = {number} * 3  # line {number}\n" for number in range(40))
    events: list[Event] = [Loaded(0.0, "a.py", text)]
    start = text.index("\nvalue_20")
    events.append(Moved(0.5, "a.py", start))
    for at, key in enumerate("\ntotal = value_1 + "):
        events.append(Changed(1.0 + at, "a.py", (Edit(start + at, start + at, key),)))
    return Recording("typed", tuple(events))


def test_prompts_are_those_of_the_layout() -> None:
    model = locate()
    tokenizer = load_tokenizer(model.tokenizer_path)
    moments = list(moments_of(session()))
    made = {
        layout: list(
            prompts_of(
                moments,
                tokenizer,
                Profile(model="m", grammar=model.grammar, tokenizer_digest=tokenizer.digest, layout=layout),
            )
        )
        for layout in ("psm_classic", "psm_line_last")
    }
    assert len(made["psm_classic"]) == len(made["psm_line_last"]) == len(moments) > 3
    cached = {
        layout: summary(compare(prompts, Counting(32), block_tokens=32))["cached_tokens_counted"]
        for layout, prompts in made.items()
    }
    assert cached["psm_line_last"] > cached["psm_classic"]


def write(path: Path) -> Path:
    entries: list[dict[str, object]] = [{"kind": "documentEncountered", "id": 1, "relativePath": "a.py", "time": 0}]
    for event in session().events:
        if isinstance(event, Loaded):
            entries.append({"kind": "setContent", "id": 1, "time": 0, "content": event.text})
        elif isinstance(event, Moved):
            selection = [[event.offset, event.offset]]
            entries.append({"kind": "selectionChanged", "id": 1, "time": 500, "selection": selection})
        else:
            edit = [[one.start, one.end, one.text] for one in event.edits]
            entries.append({"kind": "changed", "id": 1, "time": event.time_s * 1000, "edit": edit})
    path.write_text("\n".join(json.dumps(entry) for entry in entries))
    return path


def test_bad_input_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = CliRunner()
    recording = write(tmp_path / "s.jsonl")
    done = runner.invoke(bench, ["counters", str(recording), "--engine", "tgi"])
    assert done.exit_code == 2 and "tgi" in done.output
    done = runner.invoke(bench, ["counters", str(recording), "--skip", "9999"])
    assert done.exit_code == 2 and "--skip" in done.output
    monkeypatch.setenv("FORETYPE_VLLM_PYTHON", str(tmp_path / "none"))
    done = runner.invoke(bench, ["counters", str(recording)])
    assert done.exit_code == 2 and "make vllm-env" in done.output
