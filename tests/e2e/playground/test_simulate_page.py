"""`foretype simulate --page` in a real browser: what the runs printed, no complaint, the keyboard alone, light and dark."""

import json

import pytest
from e2e.playground.page_support import MISSING
from foretype_plan.simulation.page import page as page_of
from foretype_plan.simulation.world_day import REGIONS

pytestmark = [pytest.mark.skipif(MISSING is not None, reason=str(MISSING)), pytest.mark.timeout(300)]

DRAWN = "document.querySelectorAll('.uplot').length"
PAIRS = [
    {"name": "storm: </script> refused", "predicted": 0.7, "measured": 0.71, "ratio": 0.986},
    {"name": "storm: p50", "predicted": 30.0, "measured": 20.0, "ratio": 1.5},
]


def figures(scale):
    names = ("ttft_p50_ms", "ttft_p99_ms", "goodput", "refused", "cached_share", "rate", "requests")
    return {
        name: {"mean": scale * at, "low": 0.9 * scale * at, "high": 1.1 * scale * at} for at, name in enumerate(names)
    }


def scenario(name):
    made = {"scenario": name, "says": f"what {name} is", "model": "a model", "gpu": "l4", "seeds": 2}
    made["variants"] = [{"name": f"{name} {one}", "figures": figures(one), "of_seeds": []} for one in (1, 2, 3)]
    made["compared"] = [{"name": f"{name} {one}", "with": f"{name} 1", "figures": figures(one)} for one in (2, 3)]
    return made


@pytest.fixture(scope="module")
def results():
    hours = [
        {
            "region": region,
            "hour": hour,
            "rate": 100.0 + 7 * hour,
            "replicas": hour,
            "ttft_p99_ms": 50.0,
            "goodput": 0.99,
        }
        for region in REGIONS
        for hour in range(24)
    ]
    day = {"developers": 1e6, "requests_day": 7e8, "replica_hours": 3e3, "replica_hours_fixed": 6e3, "hours": hours}
    day |= {"ttft_p50_ms": 29.0, "ttft_p99_ms": 55.0, "goodput": 0.998}
    return [scenario("timestamp"), scenario("kv8"), day, {"pairs": PAIRS, "missed": ["storm: p50"]}]


@pytest.fixture(scope="module")
def url(results, tmp_path_factory):
    file = tmp_path_factory.mktemp("simulate") / "simulated.html"
    file.write_text(page_of(results), "utf-8")
    return file.as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_complained_of(page, url, scheme):
    page.do("open", url=url, scheme=scheme)
    page.until(f"{DRAWN} === 2")
    assert page.do("axe")["violations"] == []
    assert page.do("complaints") == []
    assert "NaN" not in page.evaluate("document.body.innerText")
    assert page.evaluate("performance.getEntriesByType('resource').length") == 0  # nothing from anywhere


def test_it_shows_what_was_printed(page, url, results):
    page.do("open", url=url)
    page.until(f"{DRAWN} === 2")
    said = page.evaluate("document.getElementById('variants-table').innerText")
    assert all(one["name"] in said for one in results[0]["variants"])
    assert "(missed)" in page.evaluate("document.querySelectorAll('#pairs tbody tr')[1].innerText")
    assert "(missed)" not in page.evaluate("document.querySelectorAll('#pairs tbody tr')[0].innerText")
    shown = page.evaluate(
        "Array.from(document.querySelectorAll('#day-table tbody tr')).map((row) => row.children[1].textContent)"
    )
    europe = [one["rate"] for one in results[2]["hours"] if one["region"] == "europe"]
    assert [float(one.replace(",", "")) for one in shown] == [pytest.approx(rate, rel=1e-3) for rate in europe]


def test_the_keyboard_alone_moves_it(page, url):
    page.do("open", url=url)
    page.until(f"{DRAWN} === 2")
    before = page.evaluate("document.getElementById('says').textContent")
    page.evaluate("document.getElementById('scenario').focus()")
    page.press("k")
    page.until(f"document.getElementById('says').textContent !== {json.dumps(before)}")
    page.evaluate("document.getElementById('hourly').focus()")
    page.press("End")
    page.until("document.querySelector('#day-table caption').textContent.startsWith('in their objective')")
