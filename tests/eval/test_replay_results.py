"""What is made of the rows of a replay: ratios of sums, and intervals over commits."""

from typing import Any

import msgspec
import pytest
from eval.replay_rows import commit_row
from foretype_eval.replay.developer import Tally
from foretype_eval.replay.results import CommitRow, paired_ratio, row_of, summary
from foretype_eval.replay.trace import RequestRecord


def row(commit: int, keys_with: int, **more: int) -> CommitRow:
    return commit_row(commit, **{"system": "network", "keys_without": 97, "keys_with": keys_with} | more)


def intervals(found: dict[str, object]) -> dict[str, Any]:
    ci = found["ci"]
    assert isinstance(ci, dict)
    return ci


def test_a_summary_gives_ratios_of_sums_with_intervals_over_commits() -> None:
    found = summary([row(n, keys, opportunities=90) for n, keys in enumerate((60, 70, 70))])
    # Of three draws all three are the first commit once in 27 times, which is more than the 2.5 % left out on either side.
    assert found["ksr"] == round(1 - 200 / 291, 6)
    assert intervals(found)["ksr"] == [round(1 - 70 / 97, 6), round(1 - 60 / 97, 6)]
    assert (found["commits"], found["keys_with"], found["opportunities"], found["cpo"]) == (3, 200, 270, 0.0)
    assert (found["late_rate"], intervals(found)["late_rate"]) == (None, None), "nothing was answered"
    shown = ({"network": 2}, {"network": 1, "cache": 4})
    both = summary([msgspec.structs.replace(row(n, 60), by_source=of) for n, of in enumerate(shown)])
    assert both["shown_by_source"] == {"cache": 4, "network": 3}
    nothing = summary([row(1, 0, keys_without=0)])
    assert (nothing["ksr"], intervals(nothing)["ksr"]) == (None, None)


@pytest.mark.parametrize("at", [0, 19])
def test_every_commit_is_drawn_as_often_as_another(at: int) -> None:
    found = summary([row(n, 60, answered=1, late=int(n == at)) for n in range(20)])
    # How often one of 20 is drawn in 20 draws: 0 to 3 times in 98.4 %.
    assert (found["late_rate"], intervals(found)["late_rate"]) == (0.05, [0.0, 0.15])


def test_a_paired_interval_is_that_of_the_difference_of_ratios() -> None:
    first = [row(n, keys) for n, keys in enumerate((60, 70, 70))]
    second = [row(n, 50, keys_without=103) for n in range(3)]
    found = paired_ratio(first, second, "keys_with", "keys_without")
    assert found is not None
    assert found[:3] == pytest.approx((200 / 291 - 50 / 103, 60 / 97 - 50 / 103, 70 / 97 - 50 / 103))
    alike = paired_ratio([row(n, 60) for n in range(3)], [row(n, 50) for n in range(3)], "keys_with", "keys_without")
    assert alike is not None and alike[:3] == (pytest.approx(10 / 97), None, None), (
        "no interval, instead of one without a width"
    )
    assert paired_ratio(first, second, "late", "answered") is None
    # None of three in nine is drawn in 2.3 % of all draws: less than is left out.
    late = [[row(n, 60, answered=1, late=int(n < some)) for n in range(9)] for some in (3, 0)]
    assert (drawn := paired_ratio(*late, "late", "answered")) and drawn[:2] == pytest.approx((3 / 9, 1 / 9))
    with pytest.raises(ValueError, match="the same commits"):
        paired_ratio(first, second[1:], "keys_with", "keys_without")


def test_stages_are_sampled_evenly_and_bounded() -> None:
    for requests, kept in ((0, 0), (40, 40), (41, 21), (1000, 40)):
        found = row_of(
            "network", "c", Tally(), [RequestRecord(0.0, 1.0, 1, stages_ms={"queue": 2.0}) for _ in range(requests)]
        ).stages_ms
        assert len(found.get("queue", [])) == kept, requests
