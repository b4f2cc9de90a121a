"""`foretype config check FILE`: what is wrong with a gateway's TOML file, with its line, field and remedy."""

from __future__ import annotations

import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer
from foretype_context.terminal import say, say_json

from foretype_backend.config import ConfigError, load_config
from foretype_backend.operations.migrating import migrate
from foretype_backend.secret_file import make_secret
from foretype_backend.starting import plan

__all__ = ["Finding", "app", "check_file", "line_of"]

_TABLE: Final = re.compile(r"\s*\[([^\[\]]+)\]\s*(#.*)?$")
_LINE: Final = re.compile(r"\(at line (\d+)")


class Finding(NamedTuple):
    """`line` counts from 1; 0 where the field stands nowhere in the file (a default, or what is missing)."""

    line: int
    field: str
    message: str


def line_of(text: str, field: str) -> int:
    """The line where `field` (dotted, as in `limits.max_running`) or its nearest table is set; 0 where neither is."""
    wanted = [part for part in re.split(r"[.\[\]]", field) if part]
    table: list[str] = []
    best, matched = 0, 0
    for number, line in enumerate(text.splitlines(), start=1):
        head = _TABLE.match(line)
        if head is not None:
            table = [part.strip(" \"'") for part in head[1].split(".")]
            here = table
        elif "=" in line and not line.lstrip().startswith("#"):
            key = [part.strip(" \"'") for part in line.partition("=")[0].split(".")]
            here = [*table, *key]
        else:
            continue
        if len(here) > matched and here == wanted[: len(here)]:
            best, matched = number, len(here)
    return best


def check_file(path: Path) -> Finding | None:
    """The first thing that is wrong with a file, or None: as `foretype serve` would say it, and before that nothing is asked."""
    try:
        certificate = plan(load_config(profile=path)).certificate
        if certificate is not None and certificate.expired(datetime.now(UTC)):
            raise ConfigError("gateway.tls_cert_file", f"expired on {certificate.expires:%Y-%m-%d}; renew it")
    except ConfigError as error:
        try:
            text = path.read_text("utf-8")
            tomllib.loads(text)
        except (OSError, UnicodeDecodeError):
            return Finding(0, error.field, error.message)
        except tomllib.TOMLDecodeError as bad:
            at = _LINE.search(str(bad))
            return Finding(int(at[1]) if at else 0, error.field, error.message)
        return Finding(line_of(text, error.field), error.field, error.message)
    return None


app = typer.Typer(add_completion=False, no_args_is_help=True, help="The gateway's configuration file.")


@app.callback()
def _root() -> None:  # pyright: ignore[reportUnusedFunction] - typer keeps `check` a sub-command because of it
    """The gateway's configuration file."""


app.command()(migrate)


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="the TOML file that `foretype serve --profile` gets")],
    json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Say what is wrong with a file: line, field, remedy. Exit code 0 where it can be used, 2 where not."""
    finding = check_file(file)
    if json:
        found = [] if finding is None else [finding._asdict()]
        say_json({"file": str(file), "findings": found})
    elif finding is None:
        say(f"{file}: ok")
    else:
        say(f"{file}:{finding.line}: {finding.field}: {finding.message}", err=True)
    raise typer.Exit(0 if finding is None else 2)


@app.command("new-secret")
def new_secret(
    file: Annotated[
        Path,
        typer.Argument(
            help="where to write it; `identity.salt_file` or `telemetry.key_file` of every gateway names a copy"
        ),
    ],
) -> None:
    """Make the secret of cache salts, or the key of opted-in texts. A file that is there is never replaced."""
    try:
        make_secret(file)
    except OSError as error:
        told = (
            "is there already, and without it caches are cold and texts unreadable" if file.exists() else error.strerror
        )
        say(f"foretype config: FILE: {file} {told}; give another path", err=True)
        raise typer.Exit(2) from error
    where = "`identity.salt_file` or `telemetry.key_file`, one secret for each"
    say(f"{file}: 32 bytes, for this user alone; name a copy of it in {where}, on every gateway")
