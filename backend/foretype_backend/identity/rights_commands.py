"""`foretype rights list|grant|revoke|open`: which teams share the cache of a repository."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from foretype_context.terminal import console, say
from foretype_wire.workspace import workspace_of
from rich.table import Table

from foretype_backend.identity.commands import store_command

if TYPE_CHECKING:
    from foretype_backend.identity.store import IdentityStore

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Which teams share the cache of a repository; others get their own.",
)

_Repository = Annotated[
    str, typer.Argument(help="a folder of the repository, or its id as `foretype prefix show` prints it")
]


async def _now(opened: IdentityStore, tenant: str, id: str) -> dict[str, Any]:
    return {"tenant": tenant, "repository": id, "teams": (await opened.snapshot()).rights.of_tenant(tenant).get(id)}


def _show_change(now: dict[str, Any]) -> None:
    teams = now["teams"]
    shared = "the whole tenant" if teams is None else ", ".join(teams) or "nobody"
    say(f"{now['repository']} is shared by {shared}")


def _id(repository: str) -> str:
    return workspace_of(Path(repository).resolve()).repository if Path(repository).is_dir() else repository


@app.command("grant")
@store_command(_show_change)
async def grant(opened: IdentityStore, tenant: str, repository: _Repository, team: str) -> dict[str, Any]:
    """Let a team share it. From the first grant on nobody else of the tenant does."""
    from foretype_backend.identity import rights

    await rights.grant(opened, tenant, id := _id(repository), team)
    return await _now(opened, tenant, id)


@app.command("revoke")
@store_command(_show_change)
async def revoke(opened: IdentityStore, tenant: str, repository: _Repository, team: str) -> dict[str, Any]:
    """End a team's right; every gateway knows within a second. With the last one nobody shares it."""
    from foretype_backend.identity import rights

    await rights.revoke(opened, tenant, id := _id(repository), team)
    return await _now(opened, tenant, id)


@app.command("open")
@store_command(_show_change)
async def open_(opened: IdentityStore, tenant: str, repository: _Repository) -> dict[str, Any]:
    """Take all rights away: the whole tenant shares it."""
    from foretype_backend.identity import rights

    await rights.open_to_all(opened, tenant, id := _id(repository))
    return await _now(opened, tenant, id)


def _show(found: list[dict[str, Any]]) -> None:
    table = Table("tenant", "repository", "teams")
    for row in found:
        table.add_row(row["tenant"], row["repository"], ", ".join(row["teams"]) or "nobody")
    console().print(table)


@app.command("list")
@store_command(_show)
async def list_(
    opened: IdentityStore,
    tenant: Annotated[str | None, typer.Option(help="of this tenant alone")] = None,
) -> list[dict[str, Any]]:
    """Show repositories with rights, and the teams that have them."""
    directory = await opened.snapshot()
    return [
        {"tenant": name, "repository": repository, "teams": teams}
        for name in directory.tenants
        if tenant in (None, name)
        for repository, teams in directory.rights.of_tenant(name).items()
    ]
