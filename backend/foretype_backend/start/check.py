"""`foretype config check FILE`: what is wrong with a gateway's TOML file, with its line, field and remedy."""

from __future__ import annotations

import asyncio
import os
import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer
from foretype_context.terminal import say, say_json

from foretype_backend.config.config import Config
from foretype_backend.config.load import load_config
from foretype_backend.config.secret_files import make_secret
from foretype_backend.config.settings import RUNNING_SERVERS
from foretype_backend.config.tenants import server_field
from foretype_backend.errors import ConfigError, StoreError
from foretype_backend.start.plan import StartPlan, plan

_APART = ", and keeps tenants apart by salts"


class Unknown(NamedTuple):
    """Something that a start may still fail by, or that a gateway will miss. `probed`: `--probe` finds it out."""

    field: str
    message: str
    probed: bool = True


def unknown(config: Config) -> list[Unknown]:
    """Everything of a configuration that reading it cannot tell. No address is told: it may hold a password."""
    found = [Unknown("gateway.port", "whether the port is free on the machine that serves", probed=False)]
    if config.metrics.port:
        found.append(Unknown("metrics.port", "whether the port is free on the machine that serves", probed=False))
    found += _engines(config)
    for field, url in (("identity.url", config.identity.url), ("telemetry.url", config.telemetry.url)):
        used = config.identity.on if field == "identity.url" else config.telemetry.enabled
        if used and url is not None:
            found.append(Unknown(field, "whether the store can be opened, and has a schema that this version knows"))
    if config.telemetry.enabled and "://" in (config.telemetry.text_url or ""):
        found.append(Unknown("telemetry.text_url", "whether the store of texts takes anything", probed=False))
    if config.identity.on and config.leases.redis_url is not None:
        found.append(Unknown("leases.redis_url", "whether Redis answers; without it each gateway counts alone"))
    if config.pool.fast.retire_url is not None:
        found.append(Unknown("pool.fast.retire_url", "whether Redis answers; without it nothing is retired early"))
    if config.identity.oidc is not None:
        found.append(Unknown("identity.oidc.issuer", "whether the issuer's keys can be fetched"))
    if config.tracing.endpoint is not None:
        found.append(Unknown("tracing.endpoint", "whether the collector takes spans", probed=False))
    return found


def _engines(config: Config) -> list[Unknown]:
    engine, apart = config.engine.name, _APART if config.identity.on else ""
    found: list[Unknown] = []
    if engine in ("openai", "vllm-server", *RUNNING_SERVERS):
        told = "whether the server answers, has the model and the context that are asked for"
        found.append(Unknown(server_field(config), told + apart))
    elif engine == "embedded":
        found.append(Unknown("engine.model", "whether the model loads"))
    elif engine == "vllm":
        found.append(Unknown("engine.model", "whether vLLM is installed, and the model loads", probed=False))
    if config.pool.quality is not None:
        found.append(Unknown("pool.quality.url", "whether the server answers" + apart))
    if config.pool.next_edit is not None:
        found.append(Unknown("pool.next_edit.url", "whether the server answers" + apart))
    return found


_TABLE: Final = re.compile(r"\s*\[([^\[\]]+)\]\s*(#.*)?$")
_ASK_S: Final = 5.0
"""For what a running server says of its model: the tokenizer may stand nowhere else."""
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
    """The first thing that is wrong with a file, in the words of `foretype serve`; None where that would begin to start."""
    try:
        examine(path)
    except ConfigError as error:
        return finding_of(path, error)
    return None


def examine(path: Path) -> tuple[Config, StartPlan]:
    """What a gateway would start with. Nothing is asked but the model of a server that runs already. Raises ConfigError."""
    config = load_config(profile=path)
    start = plan(config, patience_s=_ASK_S)
    certificate = start.certificate
    if certificate is not None and certificate.expired(datetime.now(UTC)):
        # A gateway serves on: behind a proxy that does not look at it, an expired certificate is better than none.
        raise ConfigError("gateway.tls_cert_file", f"expired on {certificate.expires:%Y-%m-%d}; renew it")
    return config, start


def finding_of(path: Path, error: ConfigError) -> Finding:
    """An error with its line in the file."""
    try:
        text = path.read_text("utf-8")
        tomllib.loads(text)
    except (OSError, UnicodeDecodeError):
        return Finding(0, error.field, error.message)
    except tomllib.TOMLDecodeError as bad:
        at = _LINE.search(str(bad))
        return Finding(int(at[1]) if at else 0, error.field, error.message)
    return Finding(line_of(text, error.field), error.field, error.message)


app = typer.Typer(add_completion=False, no_args_is_help=True, help="The gateway's configuration file.")


async def migrate_stores(config: Config) -> dict[str, str]:
    """Upgrade the stores that a configuration names: of each, by its section, the revision that it has now.

    Stores of one machine's own, which no file names, are made by the gateway when it needs them.

    Raises:
        StoreError: one cannot be reached or upgraded, or a newer version wrote it.
    """
    from foretype_backend.database import open_database
    from foretype_backend.identity.schema import SCHEMA as IDENTITY
    from foretype_backend.telemetry.schema import SCHEMA as TELEMETRY

    stores = (
        (IDENTITY, config.identity.on, config.identity.url),
        (TELEMETRY, config.telemetry.enabled, config.telemetry.url),
    )
    reached: dict[str, str] = {}
    for schema, used, url in stores:
        if used and url is not None:
            engine = await open_database(url, schema)
            await engine.dispose()
            reached[schema.field.partition(".")[0]] = schema.head
    return reached


@app.command()
def migrate(
    file: Annotated[Path, typer.Argument(help="the TOML file that `foretype serve --profile` gets")],
) -> None:
    """Bring the stores that a file names to this version. Does nothing if they have it already. Exit code 1 where a store cannot be."""
    try:
        reached = asyncio.run(migrate_stores(load_config(profile=file)))
    except ConfigError as error:
        say(f"foretype config: {error}", err=True)
        raise typer.Exit(2) from error
    except StoreError as error:
        say(f"foretype config: {error}", err=True)
        raise typer.Exit(1) from error
    if not reached:
        say("nothing to do: the file names no store; those of this machine are upgraded by the gateway")
    for section, revision in reached.items():
        say(f"{section}: revision {revision}")


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="the TOML file that `foretype serve --profile` gets")],
    json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
    probe: Annotated[
        bool, typer.Option("--probe", help="ask the engine, the stores and the issuer that the file names as well")
    ] = False,
) -> None:
    """Say what is wrong with a file: line, field, remedy; and what cannot be known of it. Exit code 0 where it can be used, 2 where not."""
    findings: list[Finding] = []
    left: list[Unknown] = []
    try:
        config, start = examine(file)
    except ConfigError as error:
        findings.append(finding_of(file, error))
    else:
        left = unknown(config)
        if probe:
            from foretype_backend.start.probe import probe as ask

            left = [one for one in left if not one.probed]
            findings += [finding_of(file, error) for error in asyncio.run(ask(config, start))]
    if json:
        not_checked = [{"field": one.field, "message": one.message} for one in left]
        told = {"file": str(file), "findings": [one._asdict() for one in findings], "unknown": not_checked}
        say_json(told)
    else:
        for finding in findings:
            say(f"{file}:{finding.line}: {finding.field}: {finding.message}", err=True)
        if not findings:
            say(f"{file}: ok")
        for one in left:
            say(f"not checked: {one.field}: {one.message}")
    raise typer.Exit(2 if findings else 0)


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
        there = "is there already, and without it caches are cold and texts unreadable"
        told = there if os.path.exists(file) else f"cannot be made ({error.strerror})"
        say(f"foretype config: FILE: {file} {told}; give another path", err=True)
        raise typer.Exit(2) from error
    where = "`identity.salt_file` or `telemetry.key_file`, one secret for each"
    say(f"{file}: 32 bytes, for this user alone; name a copy of it in {where}, on every gateway")
