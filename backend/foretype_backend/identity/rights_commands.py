"""`foretype rights list|grant|revoke|open`: which teams share the cache of a repository."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from foretype_context.terminal import console, say, say_json
from foretype_wire.workspace import workspace_of
from rich.table import Table

from foretype_backend.identity.commands import JsonOption, ProfileOption, StoreOption, with_store

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


@app.command("grant")
def grant(
    tenant: str,
    repository: _Repository,
    team: str,
    store: StoreOption = None,
    profile: ProfileOption = None,
    json: JsonOption = False,
) -> None:
    """Let a team share it. From the first grant on nobody else of the tenant does."""
    from foretype_backend.identity import rights

    _change(lambda opened, id: rights.grant(opened, tenant, id, team), tenant, repository, store, profile, json)


@app.command("revoke")
def revoke(
    tenant: str,
    repository: _Repository,
    team: str,
    store: StoreOption = None,
    profile: ProfileOption = None,
    json: JsonOption = False,
) -> None:
    """End a team's right; every gateway knows within a second. With the last one nobody shares it."""
    from foretype_backend.identity import rights

    _change(lambda opened, id: rights.revoke(opened, tenant, id, team), tenant, repository, store, profile, json)


@app.command("open")
def open_(
    tenant: str,
    repository: _Repository,
    store: StoreOption = None,
    profile: ProfileOption = None,
    json: JsonOption = False,
) -> None:
    """Take all rights away: the whole tenant shares it."""
    from foretype_backend.identity import rights

    _change(lambda opened, id: rights.open_to_all(opened, tenant, id), tenant, repository, store, profile, json)


@app.command("list")
def list_(
    tenant: Annotated[str | None, typer.Option(help="of this tenant alone")] = None,
    store: StoreOption = None,
    profile: ProfileOption = None,
    json: JsonOption = False,
) -> None:
    """Show repositories with rights, and the teams that have them."""

    async def work(opened: IdentityStore) -> list[dict[str, Any]]:
        directory = await opened.snapshot()
        return [
            {"tenant": name, "repository": repository, "teams": teams}
            for name in directory.tenants
            if tenant in (None, name)
            for repository, teams in directory.rights.of_tenant(name).items()
        ]

    found = with_store(work, store, profile)
    if json:
        say_json(found, indent=2)
        return
    table = Table("tenant", "repository", "teams")
    for row in found:
        table.add_row(row["tenant"], row["repository"], ", ".join(row["teams"]) or "nobody")
    console().print(table)


def _change(
    work: Callable[[IdentityStore, str], Awaitable[None]],
    tenant: str,
    repository: str,
    store: str | None,
    profile: Path | None,
    json: bool,
) -> None:
    id = workspace_of(Path(repository).resolve()).repository if Path(repository).is_dir() else repository

    async def run(opened: IdentityStore) -> list[str] | None:
        await work(opened, id)
        return (await opened.snapshot()).rights.of_tenant(tenant).get(id)

    teams = with_store(run, store, profile)
    if json:
        say_json({"tenant": tenant, "repository": id, "teams": teams})
    else:
        say(f"{id} is shared by {'the whole tenant' if teams is None else ', '.join(teams) or 'nobody'}")
