"""The options by which a command names the gateway that it measures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from foretype_wire.credentials import allowed_in_clear

from foretype_eval.console import fail
from foretype_eval.gateway import GatewayOptions

GatewayUrl = Annotated[str | None, typer.Option("--gateway", help="ws://…/v1/stream of a running gateway.")]
TokenFile = Annotated[Path | None, typer.Option("--token-file", help="File with the gateway's token.")]
Engine = Annotated[str | None, typer.Option("--engine", help="Engine of the private gateway: embedded, scripted, ….")]
ModelFile = Annotated[Path | None, typer.Option("--model", help="Model file of the private gateway.")]
ProfileFile = Annotated[Path | None, typer.Option("--profile", help="Profile file of the private gateway.")]


def gateway_options(
    url: str | None,
    token_file: Path | None,
    *,
    engine: str | None = None,
    model: Path | None = None,
    profile: Path | None = None,
) -> GatewayOptions:
    """What these options say. Where the file holds no token the command ends with status 2, and says so."""
    return GatewayOptions(
        url=url,
        token=read_token(token_file),
        token_in_clear=allowed_in_clear(os.environ),
        engine=engine,
        model=model,
        profile=profile,
    )


def read_token(path: Path | None) -> str | None:
    """The first line of a token file, as the gateway reads it."""
    if path is None:
        return None
    try:
        token = path.read_text("utf-8").split("\n", 1)[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        fail(f"--token-file: cannot read {path} ({error}); name the file that holds the gateway's token")
    if not token:
        fail(f"--token-file: {path} is empty; its first line is the gateway's token")
    return token
