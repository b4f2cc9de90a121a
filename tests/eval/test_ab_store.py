"""`foretype eval ab --store`: what clients reported becomes the user-days of an experiment."""

import datetime
import json
from pathlib import Path
from typing import Any

import pytest
from backend.telemetry_world import DAY_MS, NOON_MS, accept, display, opportunity, survive
from foretype_backend.errors import ExperimentInputError
from foretype_backend.telemetry.aggregate import refresh
from foretype_backend.telemetry.intake import Sender, read
from foretype_backend.telemetry.store import Store
from foretype_eval.ab.stored import stored_rows
from foretype_eval.cli import app
from typer.testing import CliRunner

FIRST = datetime.datetime.fromtimestamp(NOON_MS / 1000, datetime.UTC).date() - datetime.timedelta(days=2)
USERS = ["a" * 32, "b" * 32]


async def fill(url: str) -> None:
    """Two users, a day before the experiment and two of it; the last day's accept is not five minutes old."""
    store = await Store.open(url)
    days: set[tuple[str, str]] = set()
    for user in USERS:
        for age, variant in ((3, "control"), (2, "control"), (1, "fast")):
            at: dict[str, Any] = {"t_ms": NOON_MS - age * DAY_MS, "session": f"s{age}", "variant": variant}
            events = [opportunity(1, **at), opportunity(2, **at), display(3, "i3", 900.0, **at)]
            events += [accept(4, "i3", 10, **at)] + ([survive(5, "i3", 300, 7, 3, **at)] if age > 1 else [])
            received = read(Sender("c", user=user), events, received_ms=NOON_MS)
            assert not received.refused
            await store.write(received.rows)
            days.add(("default", (FIRST + datetime.timedelta(days=2 - age)).isoformat()))
    await refresh(store, days)
    await store.close()


async def test_daily_sums_are_user_days(tmp_path: Path) -> None:
    import asyncio

    url = str(tmp_path / "events.db")
    await fill(url)
    rows = await asyncio.to_thread(stored_rows, url, since=FIRST)
    assert {(row.user, row.day) for row in rows} == {
        (user, FIRST + datetime.timedelta(days=n)) for user in USERS for n in (-1, 0, 1)
    }
    before, first, last = sorted((row for row in rows if row.user == USERS[0]), key=lambda row: row.day)
    assert (before.variant, first.variant, last.variant) == ("", "control", "fast")
    assert (first.opportunities, first.displays, first.accepts, first.chars_accepted) == (2, 1, 1, 10)
    assert first.chars_retained == 7 and last.chars_retained is None
    with pytest.raises(ExperimentInputError, match=r"no daily sums of tenant 'other'"):
        await asyncio.to_thread(stored_rows, url, tenant="other")
    (tmp_path / "text").write_text("no database " * 50)
    with pytest.raises(ExperimentInputError, match="cannot be opened"):
        await asyncio.to_thread(stored_rows, str(tmp_path / "text"))
    # Characters that are not known to be retained yet are no headline.
    arguments = ["ab", "--store", url, "--since", FIRST.isoformat(), "--json"]
    done = await asyncio.to_thread(CliRunner().invoke, app, arguments)
    result = json.loads(done.stdout)
    assert result["control"] == "control" and result["treatment"] == "fast" and result["users"] == 2
    assert result["verdict"] != "better" and result["reasons"]


@pytest.mark.parametrize("scheme", ["", "sqlite:///"])
def test_a_store_that_is_not_there_is_named_and_not_made(tmp_path: Path, scheme: str) -> None:
    url = f"{scheme}{tmp_path / 'none' / 'events.db'}"
    done = CliRunner().invoke(app, ["ab", "--store", url])
    assert done.exit_code == 2
    assert f"--store: {url} is not there" in done.stderr
    assert not (tmp_path / "none").exists()


def test_a_file_or_a_store_and_not_both(tmp_path: Path) -> None:
    for arguments in (["ab"], ["ab", "rows.csv", "--store", "x.db"]):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 2 and "--store URL" in done.stderr
