"""`foretype simulate --validate` with a replica of the real vLLM: started here, asked, and predicted from another trace."""

from __future__ import annotations

import sys
from pathlib import Path

from foretype_plan.simulation.vllm_replica import validate_vllm


def test_a_replica_is_predicted_from_another_trace() -> None:
    found = validate_vllm(Path(sys.executable), seconds=12.0, progress=lambda *_: None)
    ratios = {one["name"]: one["ratio"] for one in found["pairs"]}
    assert len(ratios) == 3
    # What is cached follows from the prompts alone; times are those of a machine that does other things meanwhile.
    assert 0.8 < ratios["vLLM: share of prompts cached"] < 1.2
    assert all(ratio > 0 for ratio in ratios.values())
    made = found["calibration"]
    assert made.keys() == {"prompt_token_us", "step_ms", "request_ms", "overhead_ms"}
    assert made["prompt_token_us"] > 0 and made["step_ms"] + made["request_ms"] > 0
