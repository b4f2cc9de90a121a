"""`foretype prefix show` and `foretype prefix purge`: a running gateway's prefix cache, for operators."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from foretype_context.terminal import console, say, say_json

app = typer.Typer(add_completion=False, no_args_is_help=True, help="The prefix cache: what is cached, and its purge.")

_Repository = Annotated[
    str, typer.Argument(help="a folder of the repository, or its id as `show` prints it; empty for everything")
]
_Gateway = Annotated[str, typer.Option("--gateway", help="URL of the gateway")]
_Token = Annotated[Path | None, typer.Option("--token-file", help="file that holds a credential with scope admin")]
_Tenant = Annotated[str | None, typer.Option("--tenant", help="with the gateway's own token: whose; default: your own")]
_Json = Annotated[bool, typer.Option("--json", help="print JSON")]
_DEFAULT = "http://127.0.0.1:7878"


@app.command()
def show(
    repository: _Repository = "",
    gateway: _Gateway = _DEFAULT,
    token_file: _Token = None,
    tenant: _Tenant = None,
    as_json: _Json = False,
) -> None:
    """What is cached of a repository, by document: how much, where, since when."""
    wanted = {"repository": _id(repository)} | ({"tenant": tenant} if tenant is not None else {})
    found = _ask("GET", gateway, "/admin/prefix", token_file, params=wanted)
    if as_json:
        say_json(found)
        return
    from rich.table import Table

    table = Table(title=f"{found['tokens']:,} tokens in blocks of {found['block_tokens']}", title_justify="left")
    for column in ("document", "scope", "tokens", "retired", "sessions", "replicas", "since", "last used"):
        table.add_column(column, justify="left" if column in ("document", "scope", "replicas") else "right")
    for row in found["documents"]:
        table.add_row(
            row["document"] or "(no document)",
            row["scope"],
            f"{row['tokens']:,}",
            str(row["retired_blocks"]),
            str(row["sessions"]),
            ", ".join(row["replicas"]),
            f"{row['since_s']:.0f} s ago",
            f"{row['last_used_s']:.0f} s ago",
        )
    screen = console()
    screen.print(table)
    for one in found.get("sharing", ()):  # a gateway from before rights says nothing of it
        teams = "the whole tenant" if one["teams"] is None else ", ".join(one["teams"]) or "nobody"
        own = f"; on their own: {', '.join(one['apart'])}" if one["apart"] else ""
        screen.print(f"{one['repository'] or '(no repository)'} is shared by {teams}{own}")
    for name, replica in found["replicas"].items():
        screen.print(f"{name}: {replica['standing']} {replica['reason']}".rstrip())


@app.command()
def purge(
    repository: _Repository = "",
    gateway: _Gateway = _DEFAULT,
    token_file: _Token = None,
    tenant: _Tenant = None,
    as_json: _Json = False,
) -> None:
    """Make everything cached of a repository unreachable. Exit code 1 where a gateway or worker has not followed yet."""
    body = {"repository": _id(repository), "tenant": tenant}
    done = _ask("POST", gateway, "/admin/prefix/purge", token_file, json=body)
    if as_json:
        say_json(done)
    else:
        blocks = "what was cached is" if done["blocks"] is None else f"{done['blocks']:,} blocks are"
        say(f"{blocks} unreachable from {', '.join(done['reached']) or 'nowhere'}; epoch {done['epoch']}")
        for one in done["not_reached"]:
            say(f"foretype prefix: not reached: {one['gateway']}: {one['why']}", err=True)
    raise typer.Exit(0 if done["complete"] else 1)


def _id(repository: str) -> str:
    """The id that clients send: a folder's, or what was given."""
    if not repository or not Path(repository).is_dir():
        return repository
    from foretype_wire.workspace import workspace_of

    return workspace_of(Path(repository).resolve()).repository


def _ask(method: str, gateway: str, path: str, token_file: Path | None, **request: Any) -> dict[str, Any]:
    import httpx
    from foretype_wire.credentials import allowed_in_clear, keep_secret, without_credentials
    from foretype_wire.errors import TokenInClearError

    from foretype_backend.config.load import read_token
    from foretype_backend.errors import ConfigError

    try:
        token = None if token_file is None else read_token(token_file, "--token-file")
        keep_secret(gateway, token, in_clear=allowed_in_clear(os.environ))
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        response = httpx.request(method, gateway.rstrip("/") + path, headers=headers, timeout=10.0, **request)
        answer: Any = {} if response.status_code == 404 else response.json()
    except (ConfigError, TokenInClearError) as error:
        _fail(str(error))
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        _fail(
            f"--gateway: {without_credentials(gateway)} does not answer as a gateway ({error}); start it with `foretype serve`"
        )
    if response.status_code == 404:
        _fail("this gateway keeps no caches apart, or has no pool of replicas; see `[pool.fast]` in docs/operations.md")
    if response.status_code >= 400:
        error: Any = answer.get("error", answer)
        _fail(str(error.get("message", error)) if isinstance(error, dict) else str(error))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    return answer


def _fail(message: str) -> NoReturn:
    say(f"foretype prefix: {message}", err=True)
    raise typer.Exit(2)
