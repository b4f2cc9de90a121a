"""Formulas, and how they are worked out."""

import ast
import inspect
import math
import random

import pytest
from foretype_plan import formulas
from foretype_plan.errors import PlanError
from foretype_plan.scenario import Scenario, values
from foretype_plan.sheet import evaluate, inputs, quantities

DAY = {"peak_active_share": 0.09, "mean_active_share": 0.036, "billed_share": 0.6}


def given(**changed):
    scenario = Scenario()
    return values(scenario, scenario.tier["fast"]) | DAY | changed


def test_every_quantity_has_a_unit_says_what_it_is_and_shows_its_formula():
    for one in quantities():
        assert one.unit and one.says and one.text, one.name
        assert one.function.__name__ == one.name


def test_formulas_are_plain_arithmetic_which_both_places_can_run():
    allowed = (ast.FunctionDef, ast.Import, ast.ImportFrom, ast.Expr, ast.AnnAssign)
    tree = ast.parse(inspect.getsource(formulas))
    assert all(isinstance(one, allowed) for one in tree.body)
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert called <= {"min", "max", "ceil", "exp", "range", "_beyond", "_quantile"}
    assert not [one for one in ast.walk(tree) if isinstance(one, ast.Call) and not isinstance(one.func, ast.Name)]


def test_all_that_formulas_need_is_given_and_nothing_that_is_given_is_idle():
    known = set(given()) - {"working_days", "headroom", "active_hours"}
    assert inputs() <= set(given())
    assert known <= inputs() | {one.name for one in quantities()}


def test_a_quantity_that_is_given_is_not_worked_out():
    assert evaluate(given(step_s=1.0))["tpot_s"] == 1.0


def test_what_is_missing_is_named():
    with pytest.raises(PlanError, match=r"layers: .* needs it"):
        evaluate({"kv_heads": 1.0}, only="kv_bytes_per_token")


def test_no_quantity_is_ever_no_number():
    with pytest.raises(PlanError, match=r"prefill_busy_s|queue_s|warm_s"):
        evaluate(given(prefill_tokens_per_s=0.0))


def test_a_thousand_plans_are_numbers_all_of_them():
    draw = random.Random(7)
    for _ in range(1000):
        changed = {
            "warm_share": draw.random(),
            "shared_share": draw.random(),
            "developers": 10 ** draw.uniform(0, 7),
            "prompt_tokens": float(draw.randint(1, 32_000)),
            "objective_s": draw.uniform(0.03, 5),
            "batch": float(draw.randint(1, 256)),
        }
        known = evaluate(given(**changed))
        assert all(math.isfinite(value) for value in known.values())
        assert known["warm_s"] <= known["partial_s"] <= known["cold_s"]
        assert known["ttft_p50_s"] <= known["ttft_p95_s"] <= known["ttft_p99_s"]
        assert known["gpus_mean"] <= known["gpus_peak"] < known["gpus_with_failure"]


def test_queues_promise_what_they_keep():
    """At the utilisation that a plan allows, as many first tokens are late as the objective lets be."""
    known = evaluate(given(developers=1e6))
    assert known["utilisation"] < known["most_utilisation"]
    assert 0.95 < known["ttft_p99_s"] / known["objective_s"] <= 1.0001


def test_a_quantile_is_where_that_share_is_not_late():
    mixture = (0.6, 0.02, 0.3, 0.04, 0.1, 0.5, 0.05)
    for share in (0.5, 0.9, 0.95, 0.99):
        at = formulas._quantile(share, *mixture)
        late = formulas._beyond(at, *mixture)
        assert late <= 1 - share + 1e-9
        assert formulas._beyond(at - 1e-6, *mixture) >= 1 - share - 1e-3


def test_drafting_follows_leviathan():
    known = evaluate({"draft_tokens": 5.0, "draft_acceptance": 0.82}, only="tokens_per_step")
    assert known["tokens_per_step"] == pytest.approx(sum(0.82**k for k in range(6)))
    assert evaluate({"draft_tokens": 5.0, "draft_acceptance": 1.0}, only="tokens_per_step")["tokens_per_step"] == 6
