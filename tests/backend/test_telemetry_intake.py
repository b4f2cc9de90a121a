"""What clients may send, and what becomes of what they may not."""

import math
from typing import Any

import msgspec
import pytest
from backend.telemetry_world import DAY_MS, NOON_MS, accept, columns, display, event, opportunity, sample, survive
from foretype_backend.telemetry.intake import Received, Sender, read, safe_name
from foretype_backend.telemetry.schema import COLUMNS_OF, EVENT_AT, FIELD_COLUMNS
from foretype_wire.telemetry import Display
from hypothesis import given
from hypothesis import strategies as st

SENDER = Sender("c1", user="u1")


def read_all(*events: dict[str, Any]) -> Received:
    return read(SENDER, events, received_ms=NOON_MS)


def row(received: Received, index: int = 0) -> dict[str, Any]:
    return columns(received.rows[index])


def test_a_display_becomes_a_row() -> None:
    received = read_all(display(7, "i3", 812.5, request="r1", opportunity="o1", variant="b"))
    assert not received.refused
    got = row(received)
    assert {name: got[name] for name in ("tenant", "user_id", "session", "seq", "event", "day", "clock")} == {
        "tenant": "default",
        "user_id": "u1",
        "session": "s1",
        "seq": 7,
        "event": "display",
        "day": "2026-09-22",
        "clock": "",
    }
    fields = {name: value for name in FIELD_COLUMNS if (value := got[name]) is not None}
    assert fields == {
        "id": "i7",
        "shown": "i3",
        "opportunity": "o1",
        "served_from": "network",
        "visible_ms": 812.5,
        "characters": 10,
        "lines": 1,
        "end": "diverged",
    }
    assert got["variant"] == "b"
    assert msgspec.json.decode(got["data"]) == {"display_source": "inferred", "request": "r1"}


def test_every_kind_is_read() -> None:
    received = read_all(
        opportunity(1),
        event("request", 2, id="r1", request_class="interactive", prompt_tokens=100, cached_tokens=90),
        event("result", 3, id="r1", last_ms=12.0, first_ms=3.0, characters=5, stages_ms={"prefill": 1.5}),
        display(4, "i4", 100),
        accept(5, "i4", 5),
        event("dismiss", 6, id="i4", shown="i4", kind="typed_over"),
        survive(7, "i4", 30, 8, 2),
        event("typing", 8, keys=40, deletions=2),
        event(
            "next_edit", 10, id="n1", chain="n1", order=1, evidence="rename", end="accepted", visible_ms=9.0, inserted=4,
            deleted=5,
        ),
        event(
            "next_survive", 11, id="n1", age_s=300, inserted=4, inserted_kept=4, deleted=5, deleted_kept=5,
        ),
        sample(9, "text"),
    )  # fmt: skip
    assert not received.refused
    assert [made[EVENT_AT] for made in received.rows] == (
        [
            "opportunity",
            "request",
            "result",
            "display",
            "accept",
            "dismiss",
            "survive",
            "typing",
            "next_edit",
            "next_survive",
        ]
    )
    ((day, kept),) = received.samples
    assert (day, kept.prefix) == ("2026-09-22", "text")


def test_editor_model_and_whether_it_parses_have_their_places_and_older_clients_name_none() -> None:
    here = {"editor": "visual-studio-code", "model": "foretype-1"}
    received = read_all(
        opportunity(1, parses=True, **here),
        opportunity(2, parses=False),
        opportunity(3),
        event("result", 4, id="r1", last_ms=12.0, request_class="speculative"),
        {**event("later", 5, **here), "v": 2},
    )
    assert not received.refused
    assert [(row(received, at)["editor"], row(received, at)["model"]) for at in (0, 1, 4)] == [
        ("visual-studio-code", "foretype-1"),
        ("", ""),
        ("visual-studio-code", "foretype-1"),
    ]
    assert [row(received, at)["parses"] for at in range(3)] == [True, False, None]
    assert row(received, 3)["request_class"] == "speculative"


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (display(1, "i1", -1), "events[1].visible_ms"),
        (display(1, "i1", "soon"), "events[1].visible_ms"),  # type: ignore[arg-type]
        (display(1, "i 1", 1), "events[1].shown"),
        (display(1, "i1", 1, language="a b"), "events[1].language"),
        (display(2**60, "i1", 1), "events[1].seq"),
        ({key: value for key, value in display(1, "i1", 1).items() if key != "session"}, "events[1].session"),
        (event("dismiss", 1, id="i1", shown="i1", kind="anger"), "events[1].kind"),
        (display(1, "i1", 1, at_ms=math.nan), "events[1].at_ms"),
        (display(1, "i1", math.nan), "events[1].visible_ms"),
        ({}, "events[1].session"),
    ],
)
def test_a_wrong_event_is_refused_by_field_and_takes_no_other_with_it(bad: dict[str, Any], field: str) -> None:
    received = read_all(display(5, "i5", 1), bad, display(6, "i6", 1))
    assert len(received.rows) == 2
    ((index, where, message),) = received.refused
    assert index == 1
    assert where == field and message


def test_times_that_cannot_be_become_the_time_of_receipt_and_say_so() -> None:
    received = read_all(
        display(1, "i1", 1, t_ms=NOON_MS + 10 * DAY_MS),
        display(2, "i2", 1, t_ms=0),
        display(3, "i3", 1, t_ms=NOON_MS - 2 * DAY_MS),
        display(4, "i4", 1, t_ms=NOON_MS + 60_000),
    )
    got = [(row(received, index)["clock"], row(received, index)["day"]) for index in range(4)]
    assert got == [("future", "2026-09-22"), ("past", "2026-09-22"), ("", "2026-09-20"), ("", "2026-09-22")]


@pytest.mark.parametrize(
    ("age_days", "kept_days", "clock"), [(6, 7, ""), (7, 7, "past"), (0, 0, ""), (1, 1, "past"), (30, 400, "")]
)
def test_an_event_older_than_events_are_kept_counts_as_of_the_day_it_came(
    age_days: int, kept_days: int, clock: str
) -> None:
    """The sums of its own day are made of events that have gone."""
    received = read(
        SENDER, [opportunity(1, t_ms=NOON_MS - age_days * DAY_MS)], received_ms=NOON_MS, kept_days=kept_days
    )
    assert (row(received)["clock"], row(received)["day"] == "2026-09-22") == (clock, clock != "" or age_days == 0)


def test_unknown_fields_are_kept_as_numbers_and_never_as_text() -> None:
    more = {"novel_count": 3, "sure": True, "secret": "def password():", "deep": {"a": 1}, "Not A Label": 1}
    received = read_all(display(1, "i1", 1, **more))
    assert not received.refused
    data = msgspec.json.decode(row(received)["data"])
    assert (data["novel_count"], data["sure"]) == (3, True)
    assert "password" not in row(received)["data"] and "deep" not in data and "Not A Label" not in data


@pytest.mark.parametrize("change", [{"v": 2}, {"event": "teleported"}, {"event": 7}, {"event": None}, {"v": "x"}])
def test_unknown_versions_and_kinds_are_kept_with_their_numbers(change: dict[str, Any]) -> None:
    received = read_all({**display(1, "i1", 812.0), "shown": "source text of a later version", **change})
    assert not received.refused
    got = row(received)
    assert got["event"] == "unknown"
    assert msgspec.json.decode(got["data"])["visible_ms"] == 812.0
    assert "source text" not in str(got)


def test_names_that_cannot_be_paths_become_digests() -> None:
    assert safe_name("0a1b-_Z") == "0a1b-_Z"
    assert safe_name("") == "anonymous"
    assert len(safe_name("../../etc/passwd")) == 32 and safe_name("a" * 65) != "a" * 65


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from([*Display.__struct_fields__, "event", "age_s", "kind", "stages_ms"]) | st.text(max_size=6)


@given(st.lists(st.dictionaries(FIELDS, VALUES, max_size=12), max_size=4), st.booleans())
def test_anything_at_all_is_read_or_refused_and_counted_once(events: list[dict[str, Any]], on_a_good_one: bool) -> None:
    if on_a_good_one:
        events = [{**display(index, "i1", 1.0), **change} for index, change in enumerate(events)]
    received = read(SENDER, events, received_ms=NOON_MS)
    assert len(received.rows) + len(received.samples) + len(received.refused) == len(events)
    for made in received.rows:
        assert len(made) == len(COLUMNS_OF[made[EVENT_AT]])
        assert all(isinstance(value, str | int | float | None) for value in made)
        assert all(math.isfinite(value) for value in made if isinstance(value, float))
        assert all(value <= 2**53 for value in made if isinstance(value, int))
        assert all("\0" not in value for value in made if isinstance(value, str))
