"""What the sub-commands share: where in which file, with which gateway, and how failures are told."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Final

import typer
from foretype_context.document import Document, Snapshot
from foretype_context.errors import ProfileError, TokenizerError, UnknownControlError, UnknownGrammarError
from foretype_context.exclude import MAX_CURRENT_BYTES, reason_to_exclude
from foretype_context.small_files import read_small
from foretype_context.terminal import console
from foretype_wire.credentials import allowed_in_clear
from foretype_wire.errors import GatewayGoneError, RequestRefusedError
from rich.text import Text

from foretype_client.client import ClientOptions
from foretype_client.errors import InputError, TokenizerFetchError
from foretype_client.session.connecting import check_url

__all__ = [
    "GatewayOption",
    "Location",
    "ModelOption",
    "StateDirOption",
    "TokenFileOption",
    "client_options",
    "errors_told",
    "open_location",
    "parse_location",
    "read_source",
    "release",
    "shown_path",
]

_HEAD_BYTES: Final = 8192

GatewayOption = Annotated[
    str | None,
    typer.Option(
        "--gateway",
        envvar="FORETYPE_GATEWAY",
        metavar="URL",
        help="ws:// or wss:// URL of a gateway's /v1/stream. Default: your own private gateway, started if needed.",
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


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a file: `line` and `column` count from 1, `column` in characters; the one behind the last is allowed."""

    path: Path
    line: int
    column: int


def parse_location(text: str) -> Location:
    """`FILE:LINE:COL`; FILE may contain colons.

    Raises:
        InputError: not of this form.
    """
    file, *numbers = text.rsplit(":", 2)
    if len(numbers) != 2 or not file or not all(number.isdecimal() and len(number) <= 9 for number in numbers):
        raise InputError(f"{text!r} is not FILE:LINE:COL, e.g. src/app.py:12:5 (line and column count from 1)")
    return Location(Path(file), int(numbers[0]), int(numbers[1]))


def read_source(path: Path) -> str:
    """The text of a source file, line endings as they are.

    Raises:
        InputError: no such file, no file, not readable, too large, binary, secret, or not UTF-8.
    """
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder, not a file")
        size_bytes = path.stat().st_size
        if size_bytes > MAX_CURRENT_BYTES:
            raise InputError(f"{path} is {size_bytes:,} bytes; completion stops at {MAX_CURRENT_BYTES:,}")
        data = read_small(path, MAX_CURRENT_BYTES, links=True)
    except FileNotFoundError:
        raise InputError(f"no such file: {path}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    if b"\0" in data[:_HEAD_BYTES] and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"{path} is a binary file")
    if (reason := reason_to_exclude(str(path), len(data), data[:_HEAD_BYTES])) not in (None, "generated", "minified"):
        raise InputError(f"{path} is never sent to a model: {reason}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8: byte {error.start + 1} is 0x{data[error.start]:02x}; convert it first"
        ) from error


def open_location(location: Location) -> tuple[Snapshot, int]:
    """The document at `location` and the character offset of the place in it.

    Raises:
        InputError: the file cannot be worked on, or the place is outside of it.
    """
    text = read_source(location.path)
    absolute = location.path.absolute()
    snapshot = Document(absolute.as_uri(), text, path=shown_path(absolute)).snapshot()
    if not 1 <= location.line <= snapshot.line_count:
        raise InputError(f"line {location.line} is outside {location.path}: its lines are 1 to {snapshot.line_count}")
    start, end = snapshot.line_start(location.line - 1), snapshot.line_end(location.line - 1)
    if not 1 <= location.column <= end - start + 1:
        raise InputError(
            f"column {location.column} is outside line {location.line} of {location.path}: "
            f"its columns are 1 to {end - start + 1}"
        )
    return snapshot, start + location.column - 1


def client_options(
    command: str, gateway: str | None, token_file: Path | None, model: Path | None, state_dir: Path | None
) -> ClientOptions:
    """What a command's options and the environment say of a gateway. A token is no option: everybody can list processes.

    Raises:
        InputError: one of them cannot be used.
    """
    if gateway is not None:
        try:
            check_url(gateway)
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


def shown_path(path: Path) -> str:
    """Relative to the repository, as prompts show it; else the name alone."""
    for parent in path.parents:
        if (parent / ".git").exists():
            return path.relative_to(parent).as_posix()
    return path.name
