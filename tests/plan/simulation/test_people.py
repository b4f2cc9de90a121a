"""Arrivals that are none are a sentence; prompts share what they shared in the replay."""

import json
from random import Random

import pytest
from foretype_plan.errors import PlanError
from foretype_plan.simulation.engine import BLOCK_TOKENS
from foretype_plan.simulation.people import Developer, read_arrivals, shipped_arrivals
from plan.simulation.support import arrivals

ROW = [0.5, "interactive", 1000, 990]


def developer(rate=0.2, **more):
    plain = {"repository_tokens": 640, "most_tokens": 2000}
    return Developer("a", "team", "repo", arrivals(), Random(3), rate=rate, **(plain | more))


@pytest.mark.parametrize(
    ("stretches", "told"),
    [
        ([[[0, "interactive", 1000, 0], [-1, "interactive", 1000, 990]]], "stretch 1, request 2: gap_s is -1"),
        ([[ROW], [[float("nan"), "interactive", 1000, 0]]], "stretch 2, request 1: gap_s is nan"),
        ([[ROW, [9000, "interactive", 1000, 0]]], "request 2: gap_s is 9000"),
        ([[ROW, [None, "interactive", 1000, 0]]], "request 2 is no "),
        ([[ROW, [0.5, "interactive", 1000]]], "request 2 is no "),
        ([[ROW, [0.5, "urgent", 1000, 0]]], "class is 'urgent'"),
        ([[[0.5, "block", 10, 20]]], "prompt_tokens 10, shared_tokens 20"),
        ([[ROW], []], "stretch 2 has no requests"),
        ([[[0, "block", 10, 0]]], "all requests come at one moment"),
        ([], "no stretches"),
    ],
)
def test_a_trace_with_gaps_is_a_sentence_that_says_where(tmp_path, stretches, told):
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"stretches": stretches}))
    with pytest.raises(PlanError, match=r"^trace: ") as caught:
        read_arrivals(file)
    assert told in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{", "\xff"])
def test_a_file_that_is_no_trace(tmp_path, text):
    (tmp_path / "trace.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(PlanError, match=r"^trace: "):
        read_arrivals(tmp_path / "trace.json")
    with pytest.raises(PlanError, match=r"^trace: .*nowhere"):
        read_arrivals(tmp_path / "nowhere.json")


def test_what_ships_is_what_people_typed():
    shipped = shipped_arrivals()
    rows = [row for stretch in shipped.stretches for row in stretch]
    assert len(rows) > 1000 and 0.3 < shipped.rate < 3
    assert sum(row.shared_tokens for row in rows) > 0.8 * sum(row.prompt_tokens for row in rows)


def test_a_prompt_begins_like_the_one_before_as_far_as_it_did_in_the_replay():
    one = developer()
    one.begin()
    before, _ = one.ask()
    for _ in range(200):
        at = one._at
        prompt, gap_s = one.ask()
        assert len(prompt.keys) == prompt.tokens // BLOCK_TOKENS and len(set(prompt.keys)) == len(prompt.keys)
        assert gap_s >= 0 and prompt.tokens <= 2000
        assert prompt.keys[:10] == before.keys[:10]  # the repository's
        if at:
            assert len(set(prompt.keys) - set(before.keys)) <= 2
        before = prompt


def test_colleagues_share_the_repository_and_nothing_else():
    left = developer()
    right = Developer("b", "team", "repo", arrivals(), Random(4), rate=0.2, repository_tokens=640, most_tokens=2000)
    left.begin(), right.begin()
    assert set(left.ask()[0].keys) & set(right.ask()[0].keys) == set(left.ask()[0].keys[:10])


def test_the_rungs_of_the_ladder_make_prompts_shorter():
    one = developer()
    one.begin()
    whole = one.ask()[0].tokens
    one.alone = True
    alone = one.ask()[0]
    one.short = True
    short = one.ask()[0]
    assert whole > alone.tokens > short.tokens and alone.chain[0].start == 0
