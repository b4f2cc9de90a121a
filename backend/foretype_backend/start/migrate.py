"""`foretype config migrate FILE`: bring a gateway's stores to this version, before the gateways of this version start."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from foretype_context.terminal import say

from foretype_backend.config.config import Config
from foretype_backend.config.load import load_config
from foretype_backend.errors import ConfigError, StoreError


async def migrate_stores(config: Config) -> dict[str, str]:
    """Upgrade the stores that a configuration names: of each, by its section, the revision that it has now.

    Stores of one machine's own, which no file names, are made by the gateway when it needs them.

    Raises:
        StoreError: one cannot be reached or upgraded, or a newer version wrote it.
    """
    from foretype_backend.database import open_database
    from foretype_backend.identity.schema import SCHEMA as IDENTITY
    from foretype_backend.telemetry.migrate import SCHEMA as TELEMETRY

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
