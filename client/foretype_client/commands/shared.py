"""What the sub-commands share: with which gateway, and how failures are told."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer
from foretype_context.errors import ProfileError, TokenizerError, UnknownControlError, UnknownGrammarError
from foretype_context.terminal import console
from foretype_wire.credentials import allowed_in_clear
from foretype_wire.errors import GatewayGoneError, RequestRefusedError
from rich.text import Text

from foretype_client.client import ClientOptions
from foretype_client.errors import InputError, TokenizerFetchError
from foretype_client.session.connecting import gateways_in

GatewayOption = Annotated[
    str | None,
    typer.Option(
        "--gateway",
        envvar="FORETYPE_GATEWAY",
        metavar="URL",
        help="ws:// or wss:// URL of a gateway's /v1/stream; of several, between spaces, the nearest. Default: your own private gateway, "
        "started if needed.",
    ),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="File with the token of that gateway. Default: FORETYPE_TOKEN, if it is set.",
    ),
]
ModelOption = Annotated[
    Path | None,
    typer.Option("--model", metavar="FILE", help="Model for a private gateway that has to be started."),
]
StateDirOption = Annotated[
    Path | None,
    typer.Option("--state-dir", metavar="DIR", help="Where the private gateway is registered."),
]


def client_options(
    command: str, gateway: str | None, token_file: Path | None, model: Path | None, state_dir: Path | None
) -> ClientOptions:
    """What a command's options and the environment say of a gateway. A token is no option: everybody can list processes.

    Raises:
        InputError: one of them cannot be used.
    """
    if gateway is not None:
        try:
            gateways_in(gateway)
        except ValueError as error:
            raise InputError(str(error)) from error
    if model is not None and not model.is_file():
        raise InputError(f"no such model file: {model}")
    return ClientOptions(
        gateway=gateway,
        token=os.environ.get("FORETYPE_TOKEN") or None if token_file is None else _read_token(token_file),
        token_in_clear=allowed_in_clear(os.environ),
        model=model,
        state_dir=state_dir,
        client_name=f"foretype-{command}/{release()}",
    )


def _read_token(path: Path) -> str:
    """The first line of a token file, as the gateway reads it."""
    try:
        token = path.read_text("utf-8").split("\n", 1)[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"--token-file: cannot read {path} ({error}); name the file that holds the gateway's token"
        ) from error
    if not token:
        raise InputError(f"--token-file: {path} is empty; its first line is the gateway's token")
    return token


def release() -> str:
    """The installed version of Foretype."""
    try:
        return version("foretype")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0"


@contextmanager
def errors_told() -> Generator[None]:
    """Expected failures become one clear message on stderr: exit code 2 for bad input, 1 for everything else."""
    errors = console(stderr=True, soft_wrap=True)
    try:
        yield
    except InputError as error:
        errors.print(Text.assemble(("error:", "red"), f" {error}"))
        raise typer.Exit(2) from None
    except PermissionError as error:
        told = f" {error.filename}: {error.strerror}; run this as its owner, or name another folder with --state-dir"
        errors.print(Text.assemble(("error:", "red"), told))
        raise typer.Exit(2) from None
    except (
        GatewayGoneError,
        TokenizerFetchError,
        TokenizerError,
        UnknownGrammarError,
        ProfileError,
        UnknownControlError,
    ) as error:
        errors.print(Text.assemble(("error:", "red"), f" {error}"))
        raise typer.Exit(1) from None
    except RequestRefusedError as error:
        wait = "" if error.retry_after_ms is None else f"; try again in {error.retry_after_ms:.0f} ms"
        errors.print(Text.assemble(("error:", "red"), f" the gateway refused: {error}{wait}"))
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
