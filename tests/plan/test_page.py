"""The page holds everything it needs, and its script is what the formulas make."""

import json
import math
from importlib.resources import files

import pytest
from foretype_plan.errors import PlanError
from foretype_plan.page import page
from foretype_plan.scenario import Scenario, Tier
from foretype_plan.translate import script
from hypothesis import given
from hypothesis import strategies as st


def test_the_script_is_what_the_formulas_make():
    assert (files("foretype_plan") / "static/formulas.js").read_text("utf-8") == script(), "make plan-page"


def test_the_page_is_one_file():
    made = page(Scenario(tier={"fast": Tier(gpu="l4", model="qwen2.5-coder-1.5b", price=0.5)}))
    assert not [mark for mark in ("/*UPLOT", "/*FORMULAS*/", "/*GIVEN*/", "/*APP*/") if mark in made]
    assert "src=" not in made and "<link" not in made
    assert '"price": 0.5' in made and "NaN" not in made.split("const GIVEN")[1].split("</script>")[0]


def shown(made):
    """What a page is given; a number that is none is no JSON."""

    def refuse(name):
        raise AssertionError(name)

    return json.loads(made.partition("const GIVEN = ")[2].partition(";</script>")[0], parse_constant=refuse)


def test_a_gpu_is_known_by_any_case_and_a_replica_of_three_is_shown():
    facts = shown(page(Scenario(tier={"fast": Tier(gpu="H100", price=9.0, gpus_per_replica=3)})))
    assert facts["choice"]["gpu"] == "h100" and facts["hardware"]["h100"]["price"] == 9.0
    assert facts["choice"]["gpus_per_replica"] == 3


ANY = st.floats() | st.sampled_from([0.0, -1.0, 1.0, 1e-300, 1e300, 0.5])
INPUTS = (
    "warm_share",
    "shared_share",
    "prompt_tokens",
    "output_tokens",
    "objective_s",
    "network_s",
    "batch",
    "draft_tokens",
)


@given(
    developers=ANY,
    price=ANY | st.none(),
    budget=ANY | st.none(),
    regions=st.integers(-1, 1000),
    zones=st.dictionaries(ANY, ANY, max_size=3) | st.just({0.0: 1.0}),
    curve=st.just("office") | st.lists(ANY, min_size=24, max_size=24),
    gpus=st.integers(-1, 65),
    inputs=st.dictionaries(st.sampled_from(INPUTS), ANY, max_size=3),
)
def test_no_page_ever_holds_a_number_that_is_none(developers, price, budget, regions, zones, curve, gpus, inputs):
    tier = Tier(gpus_per_replica=gpus, price=price, inputs=inputs)
    asked = Scenario(
        developers=developers, zones=zones, curve=curve, regions=regions, budget_month=budget, tier={"fast": tier}
    )
    try:
        made = page(asked)
    except PlanError as error:
        assert error.field
        return
    assert all(math.isfinite(value) for value in shown(made)["values"].values())


def test_more_replicas_than_can_be_counted_are_no_plan():
    with pytest.raises(PlanError, match="batch"):
        page(Scenario(tier={"fast": Tier(inputs={"batch": 1e-300})}))
    with pytest.raises(PlanError, match="more replicas than can be counted"):
        page(Scenario(developers=1e12, tier={"fast": Tier(inputs={"requests_per_key": 1e300})}))
    with pytest.raises(PlanError, match="more replicas than can be counted"):
        page(Scenario(developers=1.0, tier={"fast": Tier(inputs={"output_tokens": 1e112})}))
