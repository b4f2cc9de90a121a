"""`foretype report`: what a team's suggestions were worth, by week or month, from the gateway's store."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from foretype_context.terminal import console, say, say_json
from rich.table import Column, Table

from foretype_backend.config.config import Config
from foretype_backend.config.load import load_config
from foretype_backend.errors import ConfigError, StoreError
from foretype_backend.identity.directory import DEFAULT_TENANT
from foretype_backend.reports.page import document
from foretype_backend.reports.period import named
from foretype_backend.reports.period import week as week_of
from foretype_backend.reports.report import read_report, tenants_of
from foretype_backend.reports.words import SUPPRESSED, told


def report(
    week: Annotated[bool, typer.Option("--week", help="Of the last week that is over; the default.")] = False,
    month: Annotated[bool, typer.Option("--month", help="Of the last month of whole weeks that is over.")] = False,
    of: Annotated[str, typer.Option("--of", help="Another one: 2026-W47, or 2026-11.")] = "",
    tenant: Annotated[str, typer.Option(help="Whose.")] = DEFAULT_TENANT,
    team: Annotated[str | None, typer.Option(help="Of this team alone.")] = None,
    page: Annotated[
        Path | None, typer.Option("--page", help="Write it as one HTML page that needs nothing else.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    store: Annotated[str | None, typer.Option("--store", help="postgresql://…, or a SQLite file")] = None,
    profile: Annotated[
        Path | None,
        typer.Option(
            "--profile", envvar="FORETYPE_PROFILE", help="The gateway's TOML file: its stores, and what tokens cost."
        ),
    ] = None,
) -> None:
    """What suggestions were worth: accepted, kept, keys saved, cost; by team, language, editor, variant and model."""
    try:
        if week and month:
            raise ValueError("--week and --month: give one of them")
        today = datetime.now(UTC).date()
        period = named(of, months=month, today=today) if month or not week else week_of(of, today=today)
        config = load_config(profile=profile) if profile is not None else Config()
        made = asyncio.run(read_report(config, period, tenant=tenant, team=team, url=store))
        if not made["users"] and (known := asyncio.run(tenants_of(config, store))) and tenant not in known:
            raise ValueError(f"--tenant: nothing is kept of {tenant!r}, but of {', '.join(known[:10])}")
        if page is not None:
            page.write_text(document(made), "utf-8")
    except (ValueError, StoreError, OSError) as error:
        say(f"foretype report: {error}", err=True)
        raise typer.Exit(2 if isinstance(error, ConfigError | ValueError) else 1) from error
    if json:
        say_json(made, indent=2)
    elif page is not None:
        say(page)
    else:
        _show(made)


def _show(made: dict[str, Any]) -> None:
    screen = console()
    period, of = made["period"], f"team {made['team']}" if made["team"] is not None else f"tenant {made['tenant']}"
    screen.print(f"{period['name']} ({period['first']} to {period['last']}), {of}")
    total = made["total"]
    if SUPPRESSED in total:
        screen.print(f"not shown: {total[SUPPRESSED]}", soft_wrap=True)
    else:
        table = Table("figure", "value", "95 %", "of", title=f"{made['users']} users")
        for line in told(total):
            table.add_row(*line)
        screen.print(table)
    for split, rows in made["by"].items():
        if isinstance(rows, dict) or not rows:
            continue
        heads = ("users", "accepted", "of", "kept", "saved", "cancelled", "parse")
        table = Table(Column(split, no_wrap=True, min_width=20), *heads)
        for row in rows:
            table.add_row(*_cells(row))
        screen.print(table)


def _cells(row: dict[str, Any]) -> list[str]:
    name = row["name"] or "(not told)"
    if SUPPRESSED in row:
        return [f"{name}: not shown"]
    lines = {line.name: line for line in told(row)}
    names = ("retained_per_opportunity", "keystrokes_saved", "cancel_rate", "parses")
    accepted = lines["acceptance"]
    return [
        name,
        str(row["users"]),
        accepted.value,
        accepted.of.partition(" ")[0],
        *(lines[one].value for one in names),
    ]
