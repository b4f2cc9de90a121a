import copy
import json
from pathlib import Path
from typing import Any

import pytest
from foretype_models import artifacts, card

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


def row(exact: float, copy_line: float, ends: float) -> dict[str, float]:
    return {
        "cases": 300,
        "exact_match": exact,
        "copy_line_exact_match": copy_line,
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
                "mixture_2048_nats": 3.12, "plain_2048_bits_per_byte": 1.234, "plain_2048_nats_by_eighth": [3.5, 3.1],
            },
        },
        "evaluation": {
            "fill": {
                "layout": "psm_line_last", "prompt_tokens": 1024, "new_tokens": 48,
                "rows": {"next_line": next_line, "line_fill": line_fill},
            }
        },
        "parity": {
            "prompts": 50, "positions": 9000, "openvino_mean_abs_logprob": 0.007, "openvino_max_abs_logprob": 0.05,
            "openvino_greedy_agreement": 0.99, "openvino_greedy_positions": 800, "q8_mean_logprob_change": 0.0001,
        },
    }  # fmt: skip


@pytest.fixture
def artifact() -> artifacts.Artifact:
    return artifacts.Artifact(
        "m", Path("m.gguf"), Path("t.json"), "abc", "def", 11_000_000, 1, "foretype-1", 10_227_968, 1, "1", "Apache-2.0"
    )


def test_figures_come_from_the_results(artifact: artifacts.Artifact) -> None:
    text = card.render(artifact, MANIFEST, results(row(0.0567, 0.0312, 0.97), row(0.1, 0.05, 0.99)))
    for figure in ["10,227,968", "9,876,543", "90 minutes on two cores", "3.210 nats", "1.234 bits", "5.7 %", "3.1 %"]:
        assert figure in text
    assert "| MIT | 4.0 |" in text
    assert "| generated | 17 |" in text
    assert "1,000 distinct runs" in text


def test_a_model_that_loses_to_copying_is_said_to(artifact: artifacts.Artifact) -> None:
    text = card.render(artifact, MANIFEST, results(row(0.01, 0.03, 0.5), row(0.02, 0.05, 0.9)))
    assert "does **not** yet complete more lines" in text
    assert "does not always stop by itself" in text
    better = card.render(artifact, MANIFEST, results(row(0.05, 0.03, 0.96), row(0.08, 0.05, 0.99)))
    assert "does **not**" not in better
    assert "stops by itself reliably" in better
    mixed = card.render(artifact, MANIFEST, results(row(0.05, 0.03, 0.96), row(0.02, 0.05, 0.99)))
    assert "on whole next lines, not on the rest of a line that is begun" in mixed


def test_results_of_another_file_are_refused(tmp_path: Path, artifact: artifacts.Artifact) -> None:
    made = results(row(0.05, 0.03, 0.96), row(0.08, 0.05, 0.99))
    for name, result in made.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"sha256": "abc", **result}))
    assert set(card.read_results(tmp_path, artifact)) == {"training", "evaluation", "parity"}
    stale = copy.deepcopy(made["parity"]) | {"sha256": "other"}
    (tmp_path / "parity.json").write_text(json.dumps(stale))
    with pytest.raises(card.CardError, match="measured on another file"):
        card.read_results(tmp_path, artifact)
    (tmp_path / "parity.json").unlink()
    with pytest.raises(card.CardError, match=r"parity\.json cannot be read"):
        card.read_results(tmp_path, artifact)


def test_the_committed_card_is_the_one_its_results_make() -> None:
    models = Path(__file__).parents[2] / "models"
    artifact = artifacts.locate()
    manifest = json.loads((models / "corpus" / "manifest.json").read_text())
    text = card.render(artifact, manifest, card.read_results(models / "results", artifact))
    assert (models / "MODEL_CARD.md").read_text() == text
