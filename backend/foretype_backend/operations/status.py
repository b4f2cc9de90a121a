"""`foretype status`: a gateway live in the terminal: replicas, queues, hit rates, what is shed and why."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated, Any, Final

import httpx
import msgspec
import typer
from foretype_context.authorities import trusted
from foretype_context.terminal import console, say, say_json
from foretype_wire.credentials import allowed_in_clear, keep_secret, without_credentials
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from foretype_backend.admission.degradation import RUNGS
from foretype_backend.config.load import read_token
from foretype_backend.operations.pool_figures import figures

_NAMED: Final = 8


def status(
    gateway: Annotated[str, typer.Option(help="its address; or FORETYPE_GATEWAY")] = "",
    token_file: Annotated[
        Path | None, typer.Option(help="file that holds a key with the scope admin; or FORETYPE_TOKEN")
    ] = None,
    every_s: Annotated[float, typer.Option(min=0.2, help="seconds between two looks")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="look once and end")] = False,
    json: Annotated[bool, typer.Option("--json", help="print JSON, once")] = False,
) -> None:
    """Show a gateway until interrupted."""
    url = (gateway or os.environ.get("FORETYPE_GATEWAY") or "http://127.0.0.1:7878").removesuffix("/v1/stream")
    url = url.replace("ws://", "http://", 1).replace("wss://", "https://", 1).rstrip("/")
    shown = without_credentials(url)
    try:
        key = os.environ.get("FORETYPE_TOKEN", "") if token_file is None else read_token(token_file, "--token-file")
        keep_secret(url, key, in_clear=allowed_in_clear(os.environ))
        report = fetch(url, key)
        if json:
            say_json(report, indent=2)
            return
        if once:
            console().print(table(report))
            return
        with Live(table(report), refresh_per_second=4) as live:
            while True:
                time.sleep(every_s)
                live.update(table(fetch(url, key)))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except httpx.ConnectError as error:
        say(
            f"foretype status: --gateway: {shown} cannot be reached ({error}); does it run, and is its URL right?",
            err=True,
        )
        raise typer.Exit(1) from error
    except httpx.HTTPStatusError as error:  # its own message quotes the URL, which may hold a password
        say(f"foretype status: {shown}: answers {error.response.status_code}", err=True)
        raise typer.Exit(1) from error
    except (httpx.HTTPError, httpx.InvalidURL, msgspec.DecodeError, ValueError) as error:
        say(f"foretype status: {shown}: {error}", err=True)
        raise typer.Exit(1) from error


def fetch(url: str, token: str) -> dict[str, Any]:
    """The report of a gateway. Raises httpx.HTTPError, or ValueError with the remedy."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    answer = httpx.get(f"{url}/admin/status", headers=headers, timeout=5.0, trust_env=False, verify=trusted())
    if answer.status_code in (401, 403):
        raise ValueError("the credential is not taken; give --token-file with a key made with `--scope admin`")
    if answer.status_code == 404:
        raise ValueError("no status here; is this a Foretype gateway of this version?")
    answer.raise_for_status()
    return msgspec.json.decode(answer.content, type=dict[str, Any])


def _members(pool: str, found: dict[str, Any] | None) -> list[Any]:
    """Replicas that are announced, and those that are refused and why."""
    if found is None:
        return []
    grid = Table(
        "replica", "phase", "standing", "revision", "region", "in flight", "reason", title=f"members of {pool}"
    )
    for one in found["members"]:
        row = (one["replica"], one["phase"], one["standing"], one["revision"], one["region"], str(one["in_flight"]))
        grid.add_row(*map(Text, (*row, one["reason"])))
    told = [Text(f"not asked: {one['replica']} ({one['why']}): {one['reason']}") for one in found["refused"][:_NAMED]]
    if len(found["refused"]) > _NAMED:
        told.append(Text(f"not asked: {len(found['refused']) - _NAMED} more"))
    if found["failure"]:
        told.append(Text(f"the directory is not believed for {found['age_s']:,.0f} s: {found['failure']}"))
    return [grid, *told]


def table(report: dict[str, Any]) -> Group:
    """The report as a table, one column per pool."""
    state = "draining" if report["draining"] else report["service"]
    head = (
        f"Foretype {report['version']}  up {report['uptime_s']:,.0f} s  {report['connections']:,} connections  {state}"
    )
    grid = Table("", *report["pools"])
    rows: dict[str, list[str]] = {}
    for pool in report["pools"].values():
        for name, shown in figures(pool).items():
            rows.setdefault(name, []).append(shown)
    for name, values in rows.items():
        grid.add_row(name, *values)
    parts: list[Any] = [Text(head), grid]
    parts += [one for name, pool in report["pools"].items() for one in _members(name, pool.get("membership"))]
    below = sorted(report["rungs"].items(), key=lambda one: -one[1])
    if below:
        more = f", and {len(below) - _NAMED} more" if len(below) > _NAMED else ""
        told = ", ".join(f"{tenant} {RUNGS[rung]}" for tenant, rung in below[:_NAMED])
        parts.append(Text(f"served less: {told}{more}"))
    if report.get("other_rungs"):
        parts.append(Text(f"served less: {report['other_rungs']} other tenants"))
    for one in report.get("retention", []):
        for what, days in (("event", one["events_days"]), ("text", one["text_days"])):
            if one[f"oldest_{what}"] is not None:
                parts.append(Text(f"{one['tenant']}: oldest {what} of {one[f'oldest_{what}']}, kept for {days} days"))
    for template in report["chat_templates"]:
        if template["changing"]:
            told = f"template {template['template']}: its beginning changes after {template['stable_characters']} characters"
            parts.append(Text(told))
    return Group(*parts)
