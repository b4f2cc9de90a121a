"""`foretype plan --page` in a real browser: the same numbers as Python, no complaint, the keyboard alone, light and dark."""

import json
import random

import pytest
from e2e.playground.page_support import MISSING
from foretype_plan.page import page as page_of
from foretype_plan.scenario import Scenario, values
from foretype_plan.sheet import evaluate

pytestmark = [pytest.mark.skipif(MISSING is not None, reason=str(MISSING)), pytest.mark.timeout(300)]

TILES = "document.querySelectorAll('#tiles div').length"


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    file = tmp_path_factory.mktemp("plan") / "plan.html"
    file.write_text(page_of(Scenario(developers=1000.0)), "utf-8")
    return file.as_uri()


def test_two_hundred_plans_are_the_same_in_both_places(page, url):
    page.do("open", url=url)
    page.until(f"{TILES} > 0")
    draw = random.Random(3)
    scenario = Scenario()
    base = values(scenario, scenario.tier["fast"]) | {
        "peak_active_share": 0.1,
        "mean_active_share": 0.04,
        "billed_share": 0.5,
    }
    for _ in range(200):
        given = base | {
            "warm_share": draw.random(),
            "shared_share": draw.random(),
            "developers": float(round(10 ** draw.uniform(0, 7))),
            "prompt_tokens": float(draw.randint(100, 32_000)),
            "output_tokens": float(draw.randint(1, 400)),
            "objective_s": draw.uniform(0.03, 5),
            "batch": float(draw.randint(1, 64)),
            "gpu_bandwidth": draw.uniform(0.3e12, 8e12),
            "pause_objective_s": draw.uniform(0.002, 0.1),
            "hand_over_bytes_per_s": 10 ** draw.uniform(8, 11),
            "draft_tokens": float(draw.randint(0, 8)),
            "draft_acceptance": draw.choice([0.0, 0.6, 1.0]),
        }
        here, there = evaluate(given), page.evaluate(f"plan.evaluate({json.dumps(given)})")
        assert there == pytest.approx(here, rel=1e-9)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_complained_of(page, url, scheme):
    page.do("open", url=url, scheme=scheme)
    page.until(f"{TILES} > 0")
    assert page.do("axe")["violations"] == []
    assert page.do("complaints") == []
    assert "NaN" not in page.evaluate("document.body.innerText")
    assert page.evaluate("performance.getEntriesByType('resource').length") == 0  # nothing from anywhere


def test_the_keyboard_alone_moves_it_and_what_cannot_be_is_a_sentence(page, url):
    page.do("open", url=url)
    page.until(f"{TILES} > 0")
    before = page.evaluate("document.querySelector('#tiles').innerText")
    page.evaluate("document.getElementById('developers').focus()")
    page.press("End")
    page.until(f"document.querySelector('#tiles').innerText !== {json.dumps(before)}")
    assert page.evaluate("document.getElementById('developers').getAttribute('aria-valuetext')") == "1,000,000"
    page.evaluate("document.getElementById('objective_s').focus()")
    page.press("Home")
    page.evaluate("document.getElementById('network_s').focus()")
    page.press("End")
    page.until("document.getElementById('wrong').textContent.startsWith('Network and gateway alone take 108 ms')")
    page.press("Home")
    page.until("!document.getElementById('wrong').textContent.startsWith('Network')")
    page.evaluate("document.getElementById('weight_bits').focus()")
    page.press("End")
    page.evaluate("document.getElementById('gpu').focus()")
    page.press("c")  # the socket
    page.evaluate("document.getElementById('model').focus()")
    page.press("q", "w", "e", "n", "2", ".", "5", "-", "7")
    page.evaluate("document.getElementById('gpu').focus()")
    page.press("l", "4")
    page.until("document.getElementById('wrong').textContent.includes('GPUs in a replica, or fewer bits')")
    assert "NaN" not in page.evaluate("document.body.innerText")
