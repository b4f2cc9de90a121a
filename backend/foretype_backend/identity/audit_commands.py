"""`foretype audit list|verify|export`: who did what, and whether the log is as it was written."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from foretype_context.terminal import console, say, say_json
from rich.table import Column, Table

from foretype_backend.config.secret_files import open_private, read_secret
from foretype_backend.errors import StoreError
from foretype_backend.identity.audit_chain import Act, AuditKey, ChainCheck, ChainVerdict, Entry, NotedHead
from foretype_backend.identity.commands import JsonOption, ProfileOption, StoreOption, store_command, with_store

if TYPE_CHECKING:
    from foretype_backend.identity.store import IdentityStore

app = typer.Typer(add_completion=False, no_args_is_help=True, help="The audit log: who did what; its check and export.")

_KeysOption = Annotated[
    list[Path] | None,
    typer.Option("--key-file", help="secret of other gateways or machines that wrote entries; may be given again"),
]


def _show(entries: list[Entry]) -> None:
    heads = ("at (UTC)", "actor", "action", "tenant", "subject", "details")
    table = Table("", *(Column(head, overflow="fold") for head in heads))
    for entry in entries:
        at = datetime.fromtimestamp(entry.at_ms / 1000, UTC).isoformat(" ", timespec="seconds").partition("+")[0]
        row = (entry.actor, entry.action, entry.tenant, entry.subject, entry.details)
        table.add_row(str(entry.number), at, *row)
    console().print(table)


@app.command("list")
@store_command(_show)
async def list_(
    opened: IdentityStore,
    last: Annotated[int, typer.Option(min=1, help="how many entries, the newest")] = 50,
    tenant: Annotated[str | None, typer.Option(help="of this tenant alone")] = None,
) -> list[Entry]:
    """Show the newest entries."""
    from foretype_backend.identity.audit import newest_entries

    async with opened.reading() as connection:
        return await newest_entries(connection, last, tenant)


def _show_head(done: dict[str, Any]) -> None:
    say(f"{done['entries']} entries; head {done['head']}")


@app.command("export")
@store_command(_show_head)
async def export(
    opened: IdentityStore,
    file: Annotated[Path, typer.Argument(help="JSON lines are written here, mode 0600")],
) -> dict[str, Any]:
    """Write the whole log as JSON lines, which `foretype audit verify --file FILE` checks anywhere; the log tells of it."""
    from foretype_backend.identity.audit import audit_entries

    await opened.note(Act("audit.export", str(file)))
    head = NotedHead(0, "")
    try:
        opened_file = open_private(file)
    except OSError as error:
        raise StoreError(f"FILE: {file}: {error.strerror}; name one that can be written") from error
    with opened_file as out:
        async with opened.reading() as connection:
            async for entry in audit_entries(connection):
                out.write(msgspec.json.encode(entry) + b"\n")
                head = NotedHead(entry.number, entry.digest)
    return {"entries": head.number, "head": str(head)}


@app.command("verify")
def verify(
    file: Annotated[Path | None, typer.Option("--file", help="an export instead of the store")] = None,
    anchor: Annotated[
        str | None, typer.Option("--anchor", metavar="NUMBER:DIGEST", help="a head that was noted before")
    ] = None,
    key_file: _KeysOption = None,
    chain_only: Annotated[bool, typer.Option("--chain-only", help="leave the seals: without their key")] = False,
    store: StoreOption = None,
    profile: ProfileOption = None,
    json: JsonOption = False,
) -> None:
    """Find the first entry that is not as it was written. Exit code 1 where there is one.

    The head that is printed, kept outside of the database, finds later whether the end of the log was taken away.
    """
    try:
        noted = None if anchor is None else NotedHead.parse(anchor)
        keys = [AuditKey(read_secret("--key-file", path, path)) for path in key_file or []]
        if file is not None:
            verdict = _of_file(file, keys, noted)
        else:
            verdict = _of_store(keys, noted, chain_only, store, profile)
    except OSError as error:
        say(f"foretype: --file: {file}: {error.strerror}; name an export of a log", err=True)
        raise typer.Exit(2) from error
    except ValueError as error:  # a configuration's among them
        say(f"foretype: {error}", err=True)
        raise typer.Exit(2) from error
    if json:
        say_json(verdict._asdict() | {"head": str(verdict.head)})
    elif verdict.broken_at is None:
        say(f"{verdict.entries} entries, all as they were written{_seals(verdict)}")
        say(f"head: {verdict.head}")
    else:
        say(f"foretype: broken at entry {verdict.broken_at}: {verdict.why}", err=True)
    raise typer.Exit(0 if verdict.broken_at is None else 1)


def _seals(verdict: ChainVerdict) -> str:
    return " and sealed" if verdict.sealed else "; seals were not checked"


def _of_file(file: Path, keys: list[AuditKey], anchor: NotedHead | None) -> ChainVerdict:
    check = ChainCheck(keys, anchor)
    with file.open("rb") as lines:
        for at, line in enumerate(lines, 1):
            try:
                check.take(msgspec.json.decode(line, type=Entry))
            except (msgspec.MsgspecError, UnicodeDecodeError):
                check.broken(f"line {at} is no entry of an audit log")
    return check.verdict()


def _of_store(
    keys: list[AuditKey], anchor: NotedHead | None, chain_only: bool, store: str | None, profile: Path | None
) -> ChainVerdict:
    async def work(opened: IdentityStore) -> ChainVerdict:
        from foretype_backend.identity.audit import check_store

        own = [opened.audit.key] if opened.audit.key is not None else []
        return await check_store(opened, ChainCheck([] if chain_only else [*own, *keys], anchor))

    return with_store(work, store, profile)
