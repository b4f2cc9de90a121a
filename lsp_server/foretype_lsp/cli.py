"""`foretype lsp`: the language server on standard input and output.

Imports wait until the command runs: an editor starts this with every window, and `foretype --help` should not pay for it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

_SWITCH_S: Final = 0.0005

app = typer.Typer(help="Language server on standard input and output.", add_completion=False)


@app.callback(invoke_without_command=True)
def lsp(
    gateway: Annotated[
        str, typer.Option(help="Gateway, ws(s)://host/v1/stream. Without one, a private one is used.")
    ] = "",
    token_file: Annotated[Path | None, typer.Option(help="File with the token for the gateway.")] = None,
    token_in_clear: Annotated[
        bool,
        typer.Option(
            "--token-in-clear",
            envvar="FORETYPE_TOKEN_IN_CLEAR",
            help="Send the token over ws:// to another machine too, for everybody on the way to read.",
        ),
    ] = False,
    state_dir: Annotated[Path | None, typer.Option(help="Where the private gateway says that it runs.")] = None,
    model: Annotated[Path | None, typer.Option(help="Model file for the private gateway.")] = None,
    no_telemetry: Annotated[
        bool, typer.Option("--no-telemetry", help="Tell the gateway nothing about what became of suggestions.")
    ] = False,
    popup: Annotated[
        bool,
        typer.Option(
            "--popup",
            help="Offer suggestions in the completion menu and next edits as code actions: for editors without ghost text.",
        ),
    ] = False,
    no_retrieval: Annotated[
        bool, typer.Option("--no-retrieval", help="Index no folder; use the open documents alone.")
    ] = False,
    untrusted: Annotated[
        bool,
        typer.Option("--untrusted", help="Read no files in the open folders; use the open documents alone."),
    ] = False,
    unsure: Annotated[
        bool,
        typer.Option("--unsure", help="Show what the model says even where it is less sure than its profile asks for."),
    ] = False,
    log_file: Annotated[Path | None, typer.Option(help="Log to this file instead of standard error.")] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error; default warning.")] = "",
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Ignored: the server always uses standard input and output.")
    ] = False,
) -> None:
    """Serve one editor on standard input and output.

    Options given here win over the ones the editor sends.
    """
    given: dict[str, object] = {
        "gatewayUrl": gateway,
        "tokenFile": str(token_file or ""),
        "tokenInClear": token_in_clear or None,
        "stateDir": str(state_dir or ""),
        "model": str(model or ""),
        "telemetry": False if no_telemetry else None,
        "logLevel": log_level,
        "index": {"enable": False} if no_retrieval else None,
        "policies": {"unsure": True} if unsure else None,
        "trusted": False if untrusted else None,
    }
    raise typer.Exit(
        main({name: value for name, value in given.items() if value not in ("", None)}, log_file, popup=popup)
    )


def main(overrides: dict[str, object] | None = None, log_file: Path | None = None, *, popup: bool = False) -> int:
    """Serve on file descriptors 0 and 1. Returns the exit code."""
    import asyncio
    import logging

    from foretype_lsp.transport.stdio import keep_stdout

    out_fd = keep_stdout()  # before anything is imported that could print

    from foretype_lsp.transport.protocol_types import import_types

    import_types()  # before anything imports them in the ordinary way

    from foretype_lsp.log import configure
    from foretype_lsp.run import run
    from foretype_lsp.server import Server

    configure(log_file, str((overrides or {}).get("logLevel", "warning")))
    # Sources of other files' snippets compute in threads of their own; a key must not wait 5 ms for its turn.
    sys.setswitchinterval(_SWITCH_S)
    try:
        return asyncio.run(run(Server(overrides, popup=popup), 0, out_fd))
    except KeyboardInterrupt:
        return 1
    finally:
        logging.shutdown()
