import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from foretype_lab.quality import card, evaluate
from foretype_models import artifacts

MANIFEST: dict[str, Any] = {
    "never_train": {"runs": 1000, "matched_files": ["a", "b"], "benchmarks_checked": ["HumanEval"]},
    "totals": {
        "splits": {
            "train": {"projects": 3, "files": 1234, "bytes": 5_600_000},
            "validation": {"projects": 2, "files": 10, "bytes": 1},
        },
        "bytes_by_licence": {"MIT": 4_000_000, "ISC": 1_600_000},
        "dropped": {"generated": 17},
    },
}


def row(exact: float, wins: int, losses: int, ends: float) -> dict[str, float]:
    return {
        "cases": 300,
        "exact_match": exact,
        "copy_line_exact_match": 0.0312,
        "only_model_right": wins,
        "only_copy_line_right": losses,
        "p_value": evaluate.sign_test(wins, losses),
        "empty_exact_match": 0.0,
        "first_word_match": 0.5,
        "end_of_middle_rate": ends,
    }


def results(next_line: dict[str, float], line_fill: dict[str, float]) -> dict[str, Any]:
    return {
        "training": {
            "machine": "two cores",
            "config": {
                "layers": 8, "width": 256, "heads": 4, "kv_heads": 1, "head_width": 64, "feed_forward": 768,
                "vocabulary": 16384, "max_position": 8192,
            },
            "train": {"length": 512, "long_length": 2048},
            "held_out": {
                "trained_tokens": 9_876_543, "trained_steps": 2411, "trained_seconds": 5400.0, "mixture_512_nats": 3.21,
                "mixture_2048_nats": 3.12, "plain": {"bits_per_byte": 1.234, "nats_by_eighth": [3.5, 3.1]},
            },
        },
        "evaluation": {
            "fill": {
                "layout": "psm_line_last", "repositories": 2, "prompt_tokens": 1024, "new_tokens": 48,
                "rows": {"next_line": next_line, "line_fill": line_fill},
            }
        },
        "parity": {
            "prompts": 50, "positions": 9000, "openvino_mean_abs_logprob": 0.007, "openvino_max_abs_logprob": 0.05,
            "openvino_greedy_agreement": 0.99, "openvino_greedy_positions": 800, "q8_mean_logprob_change": 0.0001,
        },
        "thresholds": {"cases": 371, "wanted_precision": 0.4, "show_rate": 0.0, "min_mean_logprob": 0.0, "precision": 0.0},
        card.DURING: {"trained_tokens": 7_654_321, "nats_by_eighth": [3.6, 5.6]},
    }  # fmt: skip


@pytest.fixture
def artifact() -> artifacts.Artifact:
    return artifacts.Artifact(
        name="m",
        path=Path("m.gguf"),
        tokenizer_path=Path("t.json"),
        sha256="abc",
        tokenizer_sha256="def",
        size_bytes=11_000_000,
        tokenizer_bytes=1,
        version="1",
        licence="Apache-2.0",
        grammar="foretype-1",
        parameters=10_227_968,
        trained_tokens=1,
    )


def test_figures_come_from_the_results(artifact: artifacts.Artifact) -> None:
    text = card.render(artifact, MANIFEST, results(row(0.0567, 30, 10, 0.97), row(0.1, 30, 10, 0.99)))
    figures = ["10,227,968", "9,876,543", "90 minutes on two cores", "3.210 nats", "1.234 bits", "5.7 %", "3.1 %"]
    for figure in [*figures, "7,654,321", "3.60, 5.60"]:
        assert figure in text
    assert "| MIT | 4.0 |" in text
    assert "| generated | 17 |" in text
    assert "1,000 distinct runs" in text


def test_a_run_that_continued_a_model_says_so(artifact: artifacts.Artifact) -> None:
    made = results(row(0.05, 3, 2, 0.96), row(0.08, 5, 3, 0.99))
    del made[card.DURING]
    text = card.render(replace(artifact, trained_tokens=20_000_000), MANIFEST, made)
    assert "20,000,000, of them 9,876,543 in 2,411 steps of the last run" in text
    assert "before the long rows" not in text


def test_the_words_follow_from_the_figures(artifact: artifacts.Artifact) -> None:
    weak = card.render(artifact, MANIFEST, results(row(0.01, 3, 20, 0.5), row(0.02, 5, 5, 0.9)))
    assert "whole next lines: **fewer** lines exactly right" in weak
    assert "the rest of a begun line: no measurable difference" in weak
    assert "do not expect useful suggestions" in weak
    assert "does not always stop by itself" in weak
    assert "At no confidence are 40.0 % of its lines right (371 cases)" in weak
    better = card.render(artifact, MANIFEST, results(row(0.25, 40, 3, 0.96), row(0.3, 50, 2, 0.99)))
    assert "**fewer**" not in better
    assert better.count("more lines exactly right") == 2
    assert "do not expect" not in better
    assert "stops by itself reliably" in better


def test_the_sign_test_is_exact_and_symmetric() -> None:
    assert evaluate.sign_test(0, 0) == 1.0
    assert evaluate.sign_test(5, 0) == evaluate.sign_test(0, 5) == pytest.approx(2 / 32)
    assert evaluate.sign_test(8, 2) == pytest.approx(2 * (1 + 10 + 45) / 1024)


def test_results_of_another_file_are_refused(tmp_path: Path, artifact: artifacts.Artifact) -> None:
    made = results(row(0.05, 3, 2, 0.96), row(0.08, 5, 3, 0.99))
    for name, result in made.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"sha256": "abc", **result}))
    assert set(card.read_results(tmp_path, artifact)) == {*card.RESULTS, card.DURING}
    stale = copy.deepcopy(made["parity"]) | {"sha256": "other"}
    (tmp_path / "parity.json").write_text(json.dumps(stale))
    with pytest.raises(card.CardError, match="measured on another file"):
        card.read_results(tmp_path, artifact)
    (tmp_path / "parity.json").unlink()
    with pytest.raises(card.CardError, match=r"parity\.json cannot be read"):
        card.read_results(tmp_path, artifact)


@pytest.mark.parametrize("name", ["evaluation", "thresholds"])
def test_results_in_another_layout_than_the_served_one_are_refused(
    tmp_path: Path, artifact: artifacts.Artifact, name: str
) -> None:
    for other, result in results(row(0.05, 3, 2, 0.96), row(0.08, 5, 3, 0.99)).items():
        (tmp_path / f"{other}.json").write_text(json.dumps({"sha256": "abc", **result}))
    card.read_results(tmp_path, artifact)
    path = tmp_path / f"{name}.json"
    found = json.loads(path.read_text())
    found.get("fill", found)["layout"] = "spm"
    path.write_text(json.dumps(found))
    with pytest.raises(
        card.CardError, match=rf"{name}\.json was measured in spm, the model is served in psm_line_last"
    ):
        card.read_results(tmp_path, artifact)


def test_the_committed_card_is_the_one_its_results_make() -> None:
    models = Path(__file__).parents[2] / "models"
    artifact = artifacts.locate()
    manifest = json.loads((models.parent / "lab" / "corpus" / "manifest.json").read_text())
    text = card.render(artifact, manifest, card.read_results(models / "results", artifact))
    assert (models / "MODEL_CARD.md").read_text() == text


def test_what_was_measured_besides_is_printed_and_nothing_else(artifact: artifacts.Artifact) -> None:
    plain = results(row(0.1, 30, 10, 0.97), row(0.1, 30, 10, 0.99))
    bare = card.render(artifact, MANIFEST, plain)
    assert "## Layouts" not in bare and "## Speculation" not in bare and "previous model" not in bare
    more = copy.deepcopy(plain)
    for kind in more["evaluation"]["fill"]["rows"].values():
        kind |= {"loop_rate": 0.0123, "no_harm_rate": 0.987}
    other = copy.deepcopy(more["evaluation"]["fill"]) | {"layout": "spm"}
    other["rows"]["next_line"] |= {"first_word_match": 0.2718, "end_in_line_rate": 0.4142}
    more["evaluation"]["beside"] = [other]
    more["thresholds"] |= {"precision_at_30": 0.412, "precision_at_50": 0.3, "precision_at_70": 0.2}
    before = {"next_line": row(0.0345, 1, 1, 0.5), "line_fill": row(0.0456, 1, 1, 0.5)}
    more["evaluation"]["previous"] = {"file": "old.gguf", "sha256": "1", "fill": {"rows": before, "layout": "spm"}}
    difference = {"cuts": 4321, "difference": -0.004, "low_95": -0.012, "high_95": 0.003}
    more["layouts"] = {
        "cuts": 5000,
        "repositories": 31,
        "margin": -0.01,
        "layout": "psm_line_last",
        "rates": {
            "q8_0/psm_classic": {"cuts": 4999, "exact": 0.2345},
            "fp32/psm_classic": {"cuts": 5, "exact": 0.2346},
        },
        "served_against": {"psm_growing": difference},
        "against_classic": {"psm_line_last": {**difference, "non_inferior": False}},
        "context": {**difference, "helps": False},
        "beside": {"fp32": difference},
    }
    more["draft"] = {
        "target": "t.gguf",
        "draft": "d.gguf",
        "layout": "psm_line_last",
        "acceptance": {"k": 4, "prompts": 40, "tokens_per_step": 2.61, "prompt_lookup_tokens_per_step": 1.7},
        "ms_per_token": {"plain": 2.5, "draft": 3.5, "lookup": 2.6},
        "speed_up": {"draft": 0.71, "lookup": 0.96},
        "same_output": {"draft": 0.825, "lookup": 1.0},
    }
    text = card.render(artifact, MANIFEST, more)
    for figure in ("1.2 %", "98.7 %", "41.2 %", "`old.gguf`", "3.5 %", "5,000 cuts of 31", "23.4 %", "2.61", "0.71"):
        assert figure in text, figure
    assert "Beside `old.gguf`, the previous model in `spm`, on" in text
    assert "| next_line, `spm` | 10.0 % | 27.2 % | 97.0 % | 41.4 % |" in text
    assert "| q8_0/psm_classic | 4,999 | 23.4 % |" in text
    assert (
        "`psm_line_last`, in which it is served, against `psm_growing`: -0.40 points (-1.20 to +0.30; 4,321 cuts)"
        in text
    )
    assert "not shown to be non-inferior" in text and "no measurable help" in text
    assert "none paid; speculation is off in the embedded engine" in text and "82.5 %" in text


def test_a_measurement_of_another_file_is_refused(artifact: artifacts.Artifact, tmp_path: Path) -> None:
    for name, found in results(row(0.1, 1, 1, 0.9), row(0.1, 1, 1, 0.9)).items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"sha256": artifact.sha256, **found}))
    (tmp_path / "draft.json").write_text(json.dumps({"sha256": "of another file"}))
    with pytest.raises(card.CardError, match=r"draft\.json was measured on another file"):
        card.read_results(tmp_path, artifact)
