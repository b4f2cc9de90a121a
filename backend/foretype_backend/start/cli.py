"""`foretype serve`: the gateway as a command."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, get_args

import typer
from foretype_context.terminal import say
from foretype_context.text.pasted import shell_line

from foretype_backend.config.config import Config
from foretype_backend.config.load import load_config
from foretype_backend.config.settings import EngineName
from foretype_backend.errors import ConfigError
from foretype_backend.transport.sockets import Inherited

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def serve(
    engine: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(get_args(EngineName))}; default embedded"),
    ] = None,
    model: Annotated[str | None, typer.Option(help="model file, or the base URL of a server")] = None,
    profile: Annotated[Path | None, typer.Option(help="TOML file: gateway, engine, model, limits")] = None,
    host: Annotated[str | None, typer.Option(help="address to bind; default 127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(help="port to bind; default 7878, 0 takes a free one")] = None,
    token_file: Annotated[Path | None, typer.Option(help="file that holds the bearer token")] = None,
    private: Annotated[
        bool, typer.Option("--private", help="one user's own gateway: free port, ends by itself")
    ] = False,
    state_dir: Annotated[Path | None, typer.Option(help="with --private: where gateway.json is written")] = None,
    linger_s: Annotated[float | None, typer.Option(help="with --private: seconds after the last connection")] = None,
    telemetry_url: Annotated[
        str | None, typer.Option(help="postgresql://…, or a SQLite file; default in the state directory")
    ] = None,
    identity_url: Annotated[
        str | None,
        typer.Option(help="store of tenants and keys: postgresql://…, or a SQLite file; asks everybody for one"),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="processes that share the port; not with the embedded engine")
    ] = None,
    no_telemetry: Annotated[
        bool, typer.Option("--no-telemetry", help="keep nothing of what clients report about suggestions")
    ] = False,
    listen_fd: Annotated[int | None, typer.Option(hidden=True, help="a worker's inherited socket")] = None,
    metrics_fd: Annotated[int | None, typer.Option(hidden=True, help="a worker's inherited socket of metrics")] = None,
    place: Annotated[str | None, typer.Option(hidden=True, help="a worker's place among the others")] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning, error; never contains source text")] = "info",
) -> None:
    """Serve completions. Prints `ready http://HOST:PORT` when the first request can be served."""
    from foretype_backend.start.announcement import new_token

    token = new_token() if private and token_file is None else None

    def read() -> Config:
        return load_config(
            engine=engine,
            model=model,
            profile=profile,
            host=host,
            port=port,
            token_file=token_file,
            private=private,
            state_dir=state_dir,
            linger_s=linger_s,
            telemetry=False if no_telemetry else None,
            telemetry_url=telemetry_url,
            identity_url=identity_url,
            workers=workers,
            token=token,
        )

    try:
        config = read()
        if engine is None and model is None and profile is None and not private:
            threading.Thread(target=tell_of_servers, name="servers that run", daemon=True).start()
        if config.gateway.workers > 1:
            raise typer.Exit(_run_workers(config, log_level))
        _run(config, read, log_level, Inherited(listen_fd, metrics_fd, place))
    except ConfigError as error:
        say(f"foretype serve: {error}", err=True)
        raise typer.Exit(2) from error


def tell_of_servers() -> None:
    """Where nobody named a model, the shipped one is served: say which better one runs here already. Takes a second."""
    from foretype_models.running_servers import probe

    for server in probe():
        if server.good is not None:
            named = f"ollama:{server.good}" if server.kind == "ollama" else server.url
            say(
                f"foretype serve: {server.kind} at {server.url} has {server.good}, and this is the shipped model; "
                f"`{shell_line('foretype', 'use', named)}` takes it for your editors, `{shell_line('--engine', server.engine, '--model', server.url)}` here",
                err=True,
            )


def _run_workers(config: Config, log_level: str) -> int:
    """Several processes on one port; each of them gets the arguments that this one got."""
    from foretype_backend.operations import logs
    from foretype_backend.operations.workers import run_workers
    from foretype_backend.start.plan import plan
    from foretype_backend.transport.sockets import address_of, bind, bind_metrics

    logs.configure(log_level)
    plan(config)  # told once, and not by each worker
    arguments = sys.argv[sys.argv.index("serve") + 1 :]
    listener, metrics = bind(config), bind_metrics(config)

    def ready() -> None:
        _say_ready(config, address_of(listener))

    return asyncio.run(run_workers(config.gateway.workers, arguments, listener, ready, metrics))


def _say_ready(config: Config, address: tuple[str, int]) -> None:
    host, port = address
    scheme = "http" if config.gateway.tls_cert_file is None else "https"
    say(f"ready {scheme}://{f'[{host}]' if ':' in host else host}:{port}")
    sys.stdout.flush()


def _run(config: Config, read: Callable[[], Config], log_level: str, inherited: Inherited) -> None:
    # Imported here so that `--help` and a wrong option answer at once.
    from foretype_backend.operations import logs

    logs.configure(log_level)
    serving = _serving(config, read, inherited)
    if sys.platform == "win32":
        asyncio.run(serving)
        return
    import uvloop

    uvloop.run(serving)


async def _serving(config: Config, read: Callable[[], Config], inherited: Inherited) -> None:
    begun = None
    if config.engine.name == "embedded":
        # It imports its libraries while this process imports its own, and reads its files.
        from foretype_backend.engines.embedded.process import EngineProcess

        begun = await EngineProcess.begin()
    try:
        from foretype_backend.start.gateway import run_gateway

        await run_gateway(
            config, read, ready=lambda address: _say_ready(config, address), inherited=inherited, begun=begun
        )
    finally:
        if begun is not None:
            await begun.close()
