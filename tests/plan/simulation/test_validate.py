"""The simulation beside the real gateway: started here, loaded, and predicted from another trace."""

import json
import sys
from random import Random

import pytest
import typer
from foretype_plan.errors import PlanError
from foretype_plan.simulation import vllm_replica
from foretype_plan.simulation.command import simulate
from foretype_plan.simulation.traces import Answered, Sent, of_gateway, pair, predicted
from foretype_plan.simulation.validate import scripted_cell
from foretype_plan.simulation.vllm_replica import calibrated, find_vllm, validate_vllm
from foretype_wire.messages import RequestClass
from typer.testing import CliRunner

APP = typer.Typer()
APP.command()(simulate)
CLASSES = (RequestClass.INTERACTIVE, RequestClass.BLOCK, RequestClass.SPECULATIVE, RequestClass.SPECULATIVE)


def sent(moment_s, class_=RequestClass.INTERACTIVE, *, person=0, tokens=1500, answered=None, refused=False):
    return Sent(moment_s, person, class_, tokens, (), answered, refused)


def asked(rate, seconds):
    rng = Random(1)
    moments = sorted(rng.uniform(0, seconds) for _ in range(round(rate * seconds)))
    return [sent(moment_s, CLASSES[at % 4], person=at % 120) for at, moment_s in enumerate(moments)]


def play(trace, begin_s=0.0, seconds=6.0):
    return predicted(scripted_cell(0.02), trace, begin_s, seconds, generated=(6,), ways_s=(0.002,))


def test_a_calm_engine_answers_all_and_a_storm_is_shed_from_the_lowest_class():
    calm, storm = (play(asked(rate, 6.0)) for rate in (80.0, 370.0))
    assert max(calm.refused.values()) < 0.01 and calm.goodput_rate == pytest.approx(80, rel=0.05)
    assert storm.refused["speculative"] > storm.refused["block"] > storm.refused["interactive"]
    assert storm.goodput_rate > 100  # of 133 that can be done


def test_the_very_requests_are_played_at_their_moments():
    """As many of each class, spread or at once, are not the same load; a draw of classes anew would make them so."""
    even = [sent(at / 60, person=at) for at in range(120)]
    burst = [sent(1.0 + at / 6000, person=at) for at in range(120)]
    assert play(even).refused["interactive"] == 0
    assert play(burst).refused["interactive"] > 0.3
    assert play(burst) == play(burst)


def test_what_was_due_before_the_window_is_played_and_not_counted():
    before = [sent(at / 2000, person=at) for at in range(200)]
    late = sent(0.1, person=999)
    alone, behind = play([late], 0.1), play([*before, late], 0.1)
    assert len(alone.ttft_s["interactive"]) == 1 and len(behind.ttft_s.get("interactive", ())) <= 1
    assert behind.goodput_rate < alone.goodput_rate or behind.first_s(0.5) > alone.first_s(0.5)


def test_a_window_of_a_gateway_counts_what_was_due_in_it():
    good, slow = Answered(0.05, 0.2, 1000, 6), Answered(0.3, 0.5, 500, 6)
    made = of_gateway(
        [
            sent(0.5, answered=good),
            sent(1.0, answered=good),
            sent(1.5, answered=slow),
            sent(2.0, refused=True),
            sent(3.0, answered=good),
        ],
        1.0,
        2.0,
    )
    assert made.ttft_s == {"interactive": [0.05, 0.3]}
    assert made.goodput_rate == 0.5 and made.refused["interactive"] == pytest.approx(1 / 3)
    assert made.cached_share == 0.5


def test_a_pair_is_a_ratio_and_never_no_number():
    assert pair("x", 2.0, 4.0) == {"name": "x", "predicted": 2.0, "measured": 4.0, "ratio": 0.5}
    assert pair("x", 0.0, 0.0)["ratio"] == 1.0 and pair("x", 1.0, 0.0)["ratio"] == 99.0


def test_a_replica_is_calibrated_on_those_who_were_alone_and_on_those_who_were_not():
    """A token of a prompt takes 0.1 ms, a step 5 ms and 1 ms for each request in it, the way 3 ms."""
    rng, trace = Random(2), []
    for at in range(60):
        cached = 64 * rng.randrange(20)
        first_s = 0.003 + 0.006 + (1500 - cached) * 1e-4
        trace.append(sent(at * 1.0, answered=Answered(first_s, first_s + 9 * 0.006, cached, 10)))
        if at % 3 == 0:  # two at once, whose prompts took long
            trace.append(sent(at + 0.5, answered=Answered(0.25, 0.25 + 9 * 0.007, 0, 10)))
            trace.append(sent(at + 0.625, answered=Answered(0.125, 0.125 + 9 * 0.007, 0, 10)))
    made = calibrated(trace)
    (spec,) = made.specs
    assert spec.token_s == pytest.approx(1e-4, rel=1e-6)
    assert (spec.overhead_s, spec.request_s) == pytest.approx((0.005, 0.001), rel=1e-6)
    assert made.overhead_s == pytest.approx(0.003)
    with pytest.raises(PlanError, match="were alone"):
        calibrated(trace[:8])
    with pytest.raises(PlanError, match="overlapped"):
        calibrated([one for one in trace if one.moment_s == int(one.moment_s)])


def test_a_prompt_that_is_computed_meanwhile_is_no_pace():
    """Who writes while a cold prompt takes its 150 ms waits for it once; that is no step of its own."""
    trace = []
    for at in range(40):
        cached = 64 * (at % 20)
        first_s = 0.003 + 0.006 + (1500 - cached) * 1e-4
        trace.append(sent(at * 1.0, answered=Answered(first_s, first_s + 9 * 0.006, cached, 10)))
        if at % 2:
            trace.append(sent(at + 0.5, answered=Answered(0.25, 0.25 + 9 * 0.007, 0, 10)))
            trace.append(sent(at + 0.625, answered=Answered(0.125, 0.125 + 9 * 0.007, 0, 10)))
        else:
            trace.append(sent(at + 0.4, answered=Answered(0.1, 0.1 + 0.15 + 9 * 0.006, 0, 10)))
            trace.append(sent(at + 0.41, answered=Answered(0.2, 0.2, 0, 1)))
    (spec,) = calibrated(trace).specs
    assert (spec.overhead_s, spec.request_s) == pytest.approx((0.005, 0.001), rel=1e-6)


def test_an_interpreter_that_is_none_is_one_sentence(tmp_path, monkeypatch):
    made = CliRunner().invoke(APP, ["--validate", "--vllm", str(tmp_path / "python")])
    assert made.exit_code == 2 and made.output.startswith("foretype simulate: vllm: ")
    monkeypatch.delenv("FORETYPE_VLLM_PYTHON", raising=False)
    monkeypatch.setattr(vllm_replica, "_ENVIRONMENT", tmp_path / "nowhere")
    assert find_vllm(None) is None
    monkeypatch.setenv("FORETYPE_VLLM_PYTHON", sys.executable)
    assert str(find_vllm(None)) == sys.executable


def test_vllm_is_given_the_shipped_model_and_its_last_words_are_told(tmp_path):
    stand_in = tmp_path / "python"
    stand_in.write_text('#!/bin/sh\nls "$5" | tr "\\n" " "\nexit 3\n')  # -P -m MODULE --model FOLDER
    stand_in.chmod(0o755)
    with pytest.raises(PlanError, match=r"did not serve: config\.json model\.safetensors tokenizer\.json"):
        validate_vllm(stand_in, seconds=1.0, progress=lambda *_: None)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_real_gateway_does_what_is_predicted(monkeypatch, tmp_path):
    monkeypatch.setattr(vllm_replica, "_ENVIRONMENT", tmp_path / "nowhere")
    monkeypatch.delenv("FORETYPE_VLLM_PYTHON", raising=False)
    made = CliRunner().invoke(APP, ["--validate", "--json"])
    assert made.exit_code == 0, made.output
    found = json.loads(made.stdout)
    assert len(found["pairs"]) >= 6 and all(
        set(one) == {"name", "predicted", "measured", "ratio"} for one in found["pairs"]
    )
    ratios = {one["name"]: one["ratio"] for one in found["pairs"]}
    assert set(found["missed"]) == {name for name, ratio in ratios.items() if not 0.8 <= ratio <= 1.2}
    assert "vllm" in found["left_out"]["vLLM"]
    # How near they are is the command's to say: where a machine is busy with other things the gateway is late.
    assert all(one["predicted"] > 0 and one["measured"] > 0 for one in found["pairs"] if "goodput" in one["name"])
