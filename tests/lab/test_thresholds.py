"""Choosing from which confidence on a suggestion is shown."""

from __future__ import annotations

import json
from pathlib import Path

from foretype_lab.quality.thresholds import NEVER, choose, curve, write
from foretype_models.artifacts import available
from hypothesis import given
from hypothesis import strategies as st

SCORED = st.lists(st.tuples(st.floats(-5, -0.01), st.booleans()), max_size=80)


@given(SCORED)
def test_what_passes_the_threshold_is_right_often_enough(scored: list[tuple[float, bool]]) -> None:
    choice = choose(scored, precision=0.5)
    shown = [exact for logprob, exact in scored if logprob >= choice.min_mean_logprob - 0.0005]
    if choice.min_mean_logprob != NEVER:
        assert len(shown) >= 10
        assert choice.precision >= 0.5


def test_a_model_that_is_never_right_has_no_threshold() -> None:
    assert choose([(-0.1, False)] * 50).min_mean_logprob == NEVER


def test_the_least_threshold_is_taken() -> None:
    scored = [(-0.1 * i, i < 20) for i in range(1, 61)]
    choice = choose(scored, precision=0.5)
    assert choice.min_mean_logprob == -3.8
    assert curve(scored)["precision_at_30"] == 1.0


def test_the_thresholds_are_written_beside_the_model_they_belong_to(tmp_path: Path) -> None:
    entry = {
        "name": "m",
        "file": "m.gguf",
        "sha256": "0",
        "bytes": 1,
        "grammar": "foretype-1",
        "tokenizer": {"file": "t.json", "sha256": "0", "bytes": 1},
        "parameters": 1,
        "trained_tokens": 1,
        "version": "0",
        "licence": "Apache-2.0",
    }
    (tmp_path / "index.json").write_text(json.dumps({"default": "m", "models": [entry]}))
    chosen = write(tmp_path, {"line_fill": [(-0.2, True)] * 12 + [(-2.0, False)] * 12}, 0.5, "spm")
    (model,) = available(tmp_path)
    assert model.profile["min_mean_logprob"]["line"] == chosen["min_mean_logprob"] == -2.0
    assert chosen["precision"] == 0.5
    assert model.profile["local_min_confidence"] == 0.5
    assert model.profile["layout"] == chosen["layout"] == "spm"
    write(tmp_path, {"line_fill": [(-0.2, False)] * 24}, 0.6, "psm_line_last")
    (model,) = available(tmp_path)
    assert dict(model.profile) == {
        "layout": "psm_line_last",
        "local_min_confidence": 0.6,
        "min_mean_logprob": {"mid_line": NEVER, "line": NEVER, "block": NEVER},
    }
