"""Reports: every figure against the events it is of, nothing about fewer than five people, and what is asked for wrongly."""

import asyncio
import json
import math
import random
import re
from datetime import date, timedelta
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import typer
from backend.simulated_month import write_month
from backend.telemetry_world import NOON_MS, accept, display, event, opportunity
from foretype_backend.reports.command import report
from foretype_backend.reports.figures import clustered
from foretype_backend.reports.period import Period, month, week
from foretype_backend.reports.suppression import hidden, hidden_in
from foretype_backend.telemetry.aggregate import refresh
from foretype_backend.telemetry.intake import Sender, read
from foretype_backend.telemetry.store import Consent, Store
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text
from typer.testing import CliRunner, Result

app = typer.Typer()
app.command()(report)


def run(store: Path | str, *options: str) -> Result:
    return CliRunner().invoke(app, ["--store", str(store), *options])


def told(store: Path | str, *options: str) -> dict[str, Any]:
    done = run(store, *options, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def row_of(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(row for row in rows if row["name"] == name)


# Periods


@given(st.integers(2000, 2090), st.integers(1, 12))
def test_months_are_whole_weeks_and_no_week_is_in_two_or_in_none(year: int, number: int) -> None:
    period = month(f"{year}-{number:02}")
    after = month(f"{year + number // 12}-{number % 12 + 1:02}")
    assert after.first == period.last + timedelta(days=1)
    assert all(monday.weekday() == 0 for monday in period.weeks) and len(period.weeks) in (4, 5)
    assert [week(one.name) for one in period.each()] == period.each()


@pytest.mark.parametrize("given", ["2026-W54", "2026-W00", "2026-47", "last", "2026-W1", "W47"])
def test_what_is_no_week_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="is no week; write it as 2026-W47"):
        week(given)


def test_a_week_is_reported_when_it_is_over_and_the_last_one_is_the_default() -> None:
    sunday = date(2026, 11, 22)
    with pytest.raises(ValueError, match="2026-W47 ends on 2026-11-22, and is reported when it is over"):
        week("2026-W47", today=sunday)
    assert week("2026-W47", today=sunday + timedelta(days=1)).last == sunday
    assert week("", today=sunday) == week("2026-W46")
    assert month("", today=date(2026, 11, 29)) == month("2026-10")
    assert month("", today=date(2026, 12, 1)) == month("2026-11")
    assert month("", today=date(2025, 11, 1)) == month("2025-09")  # October's last week has its Sunday in November
    with pytest.raises(ValueError, match="ends on"):
        month("2026-11", today=date(2026, 11, 29))


# Who is hidden

PEOPLE = st.dictionaries(
    st.tuples(st.sampled_from("ABCD"), st.sampled_from("xyzw")),
    st.sets(st.integers(0, 30), min_size=1, max_size=12),
    max_size=10,
)


def users_of(people: dict[tuple[str, str], set[int]]) -> dict[tuple[str, str], set[str]]:
    return {place: {f"u{who}" for who in known} for place, known in people.items()}


def members(users: dict[tuple[str, str], set[str]], team: str | None, value: str | None) -> set[str]:
    return set().union(*(who for (t, v), who in users.items() if team in (None, t) and value in (None, v)))


def sums_of(users: dict[tuple[str, str], set[str]]) -> list[tuple[tuple[str | None, str | None], list[Any]]]:
    """Every whole that the tables of a report show beside its parts."""
    teams, values = sorted({t for t, _ in users}), sorted({v for _, v in users})
    made: list[Any] = [((None, None), [(None, v) for v in values]), ((None, None), [(t, None) for t in teams])]
    made += [((t, None), [(t, v) for v in values if (t, v) in users]) for t in teams]
    return made + [((None, v), [(t, v) for t in teams if (t, v) in users]) for v in values]


@given(PEOPLE)
def test_nothing_shown_is_of_fewer_than_five_and_no_sum_tells_of_so_few(people: dict[Any, set[int]]) -> None:
    users = users_of(people)
    gone = hidden(users)
    for whole, parts in sums_of(users):
        for place in (whole, *parts):
            assert place in gone or not users or len(members(users, *place)) >= 5
        missing = [place for place in parts if place in gone]
        if whole in gone:
            assert missing or not parts, "the parts tell the whole"
        elif missing:
            assert len(missing) >= 2, "one part is the whole less the others"
            assert len(set().union(*(members(users, *place) for place in missing))) >= 5


@given(st.lists(PEOPLE, min_size=2, max_size=5))
def test_a_month_does_not_tell_what_one_of_its_weeks_hides(weeks: list[dict[Any, set[int]]]) -> None:
    all_users = [users_of(one) for one in weeks]
    gone = hidden_in(all_users)
    whole: dict[tuple[str, str], set[str]] = {}
    for one in all_users:
        for place, who in one.items():
            whole.setdefault(place, set()).update(who)
    for place in {place for _, parts in sums_of(whole) for place in parts} - gone:
        of_weeks = [members(one, *place) for one in all_users if place in hidden(one)]
        assert not of_weeks or (len(of_weeks) >= 2 and len(set().union(*of_weeks)) >= 5)


def test_with_a_small_team_the_next_smallest_goes_too() -> None:
    users = {("big", "x"): set("abcdefghij"), ("middle", "x"): set("klmnop"), ("small", "x"): set("qr")}
    assert hidden(users) == {("small", None), ("small", "x"), ("middle", None), ("middle", "x")}
    assert hidden({("big", "x"): set("abcdef")}) == set()
    assert (None, None) in hidden({("big", "x"): set("abcd")})


# Intervals


def test_a_share_of_events_that_come_from_few_users_is_as_uncertain_as_they_differ() -> None:
    """True share 0.3; users differ by a logit deviation of 1. Wilson's plain interval holds it far too seldom."""
    rng, held, plain = random.Random(7), 0, 0
    logits = [rng.gauss(0, 1) for _ in range(100_000)]
    truth = fmean(1 / (1 + math.exp(0.9 - one)) for one in logits)
    for _ in range(400):
        users: list[tuple[float, float]] = []
        for _ in range(12):
            rate, n = 1 / (1 + math.exp(0.9 - rng.gauss(0, 1))), rng.randint(50, 150)
            users.append((sum(rng.random() < rate for _ in range(n)), n))
        share = clustered(users)
        assert share.low is not None and share.high is not None and share.value is not None
        held += share.low <= truth <= share.high
        half = 1.96 * math.sqrt(share.value * (1 - share.value) / share.whole)
        plain += abs(share.value - truth) <= half
    assert 0.90 <= held / 400 <= 0.99
    assert plain / 400 < 0.6


def test_a_share_has_no_interval_without_five_users_and_none_at_all_without_trials() -> None:
    assert clustered([(1, 2)] * 4)[:3] == (4, 8, 0.5)
    assert clustered([(1, 2)] * 4).low is None
    assert clustered([(0, 0)] * 9) == (0, 0, None, None, None)
    none, every = clustered([(0, 10)] * 6), clustered([(10, 10)] * 6)
    assert none.low == 0 and none.high is not None and 0.1 < none.high < 0.7
    assert every.high == 1 and every.low is not None and 0.3 < every.low < 0.9


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=30))
def test_a_share_lies_in_its_interval_and_both_between_0_and_1(pairs: list[tuple[int, int]]) -> None:
    share = clustered((min(pair), max(pair)) for pair in pairs)
    if share.value is not None and share.low is not None and share.high is not None:
        assert 0 <= share.low <= share.value + 1e-12 and share.value - 1e-12 <= share.high <= 1


# A simulated month


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("month") / "events.db"
    asyncio.run(write_month(str(path), month("2026-09"), developers=60, suggestions=2, seed=1))
    return path


def counted(path: Path, query: str) -> int:
    async def ask() -> int:
        store = await Store.open(str(path))
        async with store.reading() as connection:
            found = (await connection.execute(text(query))).scalar_one()
        await store.close()
        return int(found)

    return asyncio.run(ask())


def test_figures_are_the_events(simulated: Path) -> None:
    made = told(simulated, "--week", "--of", "2026-W38")
    days = "day BETWEEN '2026-09-14' AND '2026-09-20'"
    assert made["period"] == {"name": "2026-W38", "first": "2026-09-14", "last": "2026-09-20"}
    assert made["users"] == 60
    total = made["total"]
    for figure, part, whole in (
        (total["acceptance"], "event = 'accept'", "event = 'display'"),
        (total["cancel_rate"], "event = 'result' AND finish = 'cancelled'", "event = 'result'"),
        (total["parses"], "event = 'opportunity' AND parses", "event = 'opportunity' AND parses IS NOT NULL"),
        (
            total["persistence"]["1800"],
            "event = 'survive' AND age_s = 1800 AND levenshtein < 0.33 * max(characters, length_now)",
            "event = 'survive' AND age_s = 1800",
        ),
        (
            row_of(made["by"]["language"], "python")["acceptance"],
            "event = 'accept' AND language = 'python'",
            "event = 'display' AND language = 'python'",
        ),
    ):
        assert figure["numerator"] == counted(simulated, f"SELECT count(*) FROM events WHERE {days} AND {part}")
        assert figure["denominator"] == counted(simulated, f"SELECT count(*) FROM events WHERE {days} AND {whole}")
        assert figure["value"] == pytest.approx(figure["numerator"] / figure["denominator"], rel=1e-5)
        assert figure["low"] < figure["value"] < figure["high"]
    kept = f"SELECT sum(arc) FROM events WHERE {days} AND age_s = 300"
    assert total["retained_per_opportunity"]["numerator"] == counted(simulated, kept)
    assert 0.05 < total["keystrokes_saved"]["value"] < 0.3
    assert total["cost_per_accepted_token"] is None
    everywhere = [total, *(row for rows in made["by"].values() if isinstance(rows, list) for row in rows)]
    for group in everywhere:
        if "suppressed" in group:
            assert set(group) == {"name", "suppressed"}, "its name, and nothing of it"
            continue
        flat = [one for one in group.values() if isinstance(one, dict)]
        flat = [part for one in flat for part in ([one] if "value" in one else one.values())]
        assert len(flat) >= 15 and all({"numerator", "denominator", "low", "high"} <= set(one) for one in flat)


def test_small_teams_and_languages_are_named_and_not_shown_in_any_report(simulated: Path) -> None:
    whole = told(simulated, "--month", "--of", "2026-09")
    assert whole["period"]["first"] == "2026-08-31" and whole["period"]["last"] == "2026-09-27"
    hidden_teams = {row["name"] for row in whole["by"]["team"] if "suppressed" in row}
    assert "legal" in hidden_teams and len(hidden_teams) == 2, "one alone is the whole less the others"
    assert {"cobol"} < {row["name"] for row in whole["by"]["language"] if "suppressed" in row}
    assert told(simulated, "--of", "2026-W38", "--team", "legal")["total"] == {
        "suppressed": "fewer than 5 users, or what would tell of so few by subtraction"
    }
    search = told(simulated, "--of", "2026-W38", "--team", "search")
    assert search["users"] == 24 and "team" not in search["by"]
    assert row_of(search["by"]["language"], "python")["users"] < 24


def test_single_users_are_shown_where_their_tenant_allows_it(simulated: Path) -> None:
    made = told(simulated, "--of", "2026-W38")
    assert "dev0001" not in json.dumps(made) and "--user-reports" in made["by"]["user"]["suppressed"]

    async def allow(whether: bool) -> None:
        store = await Store.open(str(simulated))
        await store.set_consent(Consent("default", user_reports=whether))
        await store.close()

    asyncio.run(allow(True))
    try:
        rows = told(simulated, "--of", "2026-W38")["by"]["user"]
        assert len(rows) == 60 and row_of(rows, "dev0001")["acceptance"]["denominator"] > 0
    finally:
        asyncio.run(allow(False))


def test_how_it_feels_is_a_table_with_the_users_own_times(simulated: Path) -> None:
    feels = told(simulated, "--of", "2026-W39")["feels"]
    assert feels["answers"] == counted(simulated, "SELECT count(*) FROM events WHERE event = 'feel'") >= 5
    rows = {row["answer"]: row for row in feels["rows"]}
    assert sum(row["numerator"] for row in rows.values()) == feels["answers"]
    assert rows["yes"]["p50_ms"] < rows["no"]["p50_ms"] and rows["yes"]["p95_ms"] == pytest.approx(
        2.5 * rows["yes"]["p50_ms"], rel=0.01
    )
    assert told(simulated, "--of", "2026-W38")["feels"] is None


def test_a_cost_is_what_the_prices_say(simulated: Path, tmp_path: Path) -> None:
    profile = tmp_path / "gateway.toml"
    profile.write_text(
        "[prices]\nprompt_per_million = 1.0\ncached_per_million = 0.1\ngenerated_per_million = 4.0\n"
        f'[telemetry]\nurl = "{simulated}"\n'
    )
    done = CliRunner().invoke(app, ["--profile", str(profile), "--of", "2026-W38", "--json"])
    cost = json.loads(done.stdout)["total"]["cost_per_accepted_token"]
    days = "day BETWEEN '2026-09-14' AND '2026-09-20'"
    asked = counted(simulated, f"SELECT count(*) FROM events WHERE {days} AND event = 'request'")
    tokens, characters = (
        counted(simulated, f"SELECT sum({name}) FROM events WHERE {days} AND event = 'result'")
        for name in ("generated_tokens", "characters")
    )
    price = asked * (100 * 1.0 + 1400 * 0.1) / 1e6 + tokens * 4.0 / 1e6
    accepted = counted(simulated, f"SELECT sum(characters) FROM events WHERE {days} AND event = 'accept'")
    assert cost["value"] == pytest.approx(price / (accepted * tokens / characters), rel=1e-4)


def test_the_page_needs_nothing_else_and_shows_every_denominator(simulated: Path, tmp_path: Path) -> None:
    page = tmp_path / "week.html"
    done = run(simulated, "--of", "2026-W38", "--page", str(page))
    assert done.exit_code == 0 and str(page) in done.output
    html = page.read_text()
    assert not re.search(r"<script|<link|<img|src=|href=|@import|url\(", html)
    made = told(simulated, "--of", "2026-W38")
    assert f"{made['total']['acceptance']['denominator']:,.0f} suggestions read" in html
    assert "not shown: too few users" in html and "prefers-color-scheme: dark" in html


def test_the_terminal_shows_the_same(simulated: Path) -> None:
    out = run(simulated, "--of", "2026-W38").output
    assert "2026-W38" in out and "suggestions read" in out and "legal: not shown" in out


# What is wrong


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--of", "2026-W99"], 2, "'2026-W99' is no week; write it as 2026-W47"),
        (["--of", "2026-13"], 2, "'2026-13' is no month; write it as 2026-11"),
        (["--month", "--of", "2026-W01"], 2, "is no month"),
        (["--month", "--of", "2026-13"], 2, "'2026-13' is no month; write it as 2026-11"),
        (["--week", "--month"], 2, "--week and --month: give one of them"),
        (["--of", "2199-W01"], 2, "is reported when it is over"),
        (["--of", "2026-W38", "--tenant", "defualt"], 2, "--tenant: nothing is kept of 'defualt', but of default"),
        (["--store", "/nowhere/events.db"], 1, "/nowhere/events.db is not there"),
    ],
)
def test_what_is_asked_for_wrongly_is_told_with_its_remedy(
    simulated: Path, options: list[str], code: int, message: str
) -> None:
    done = run(simulated, *options)
    assert done.exit_code == code and message in done.output.replace("\n", " ")


async def test_a_report_is_read_while_somebody_writes_and_changes_no_store(simulated: Path, tmp_path: Path) -> None:
    writer = await Store.open(str(simulated))
    async with writer.transaction():  # SQLite lets one in
        made = await asyncio.to_thread(told, simulated, "--of", "2026-W38")
    assert made["users"] == 60
    await writer.close()
    older = tmp_path / "older.db"
    store = await Store.open(str(older))
    async with store.transaction() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '0002'"))
    await store.close()
    done = await asyncio.to_thread(run, older, "--of", "2026-W38")
    assert done.exit_code == 1 and "start the gateway once to upgrade it" in done.output.replace("\n", " ")


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_names_of_teams_are_text_and_fewer_than_five_people_are_nothing(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    path = str(tmp_path / "events.db") if kind == "sqlite" else str(request.getfixturevalue("postgres_url"))
    store = await Store.open(path)
    for number in range(9):
        team = "<b>red</b>" if number < 5 else "blue"
        events = (opportunity(1), display(2, "a", 900.0), accept(3, "a", 5), event("typing", 4, keys=9, deletions=0))
        if number == 0:
            events = (*events, event("feel", 5, answer="yes", p50_ms=90.0, p95_ms=200.0, suggestions=9))
        sender = Sender("c", team=team, user=f"u{number}", tenant="default" if number < 8 else "small")
        await store.write(read(sender, events, received_ms=NOON_MS).rows)
    await refresh(store, {("default", "2026-09-22"), ("small", "2026-09-22")})
    await store.close()
    page = tmp_path / "week.html"
    done = await asyncio.to_thread(run, path, "--of", "2026-W39", "--page", str(page))
    assert done.exit_code == 0
    assert "&lt;b&gt;red" in page.read_text() and "<b>red" not in page.read_text()
    small = await asyncio.to_thread(told, path, "--of", "2026-W39", "--tenant", "small")
    assert (
        "suppressed" in small["total"]
        and small["users"] is None
        and not any(rows for split, rows in small["by"].items() if split != "user")
    )


def test_a_period_knows_its_days() -> None:
    assert Period("2026-W39", (date(2026, 9, 21),)).last == date(2026, 9, 27)
