"""`foretype serve`: the gateway as a command."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from foretype_backend.config import Config, ConfigError, load_config
from foretype_backend.secret_file import SALT_FIELD, check_secret_files, read_secret

if TYPE_CHECKING:
    from foretype_client.tracing.spans import Tracing
    from foretype_context.tokens import Tokenizer
    from starlette.applications import Starlette

    from foretype_backend.admission.accounts import Accounts
    from foretype_backend.admission.redis_leases import RedisLeases
    from foretype_backend.chat.pool import QualityPool
    from foretype_backend.engines.port import Engine
    from foretype_backend.identity.identity import Identity
    from foretype_backend.identity.usage import UsageWriter
    from foretype_backend.operations.siblings import Place
    from foretype_backend.prefix.purge import Purger
    from foretype_backend.prefix.salt import SaltBook
    from foretype_backend.telemetry.sink import TelemetrySink

__all__ = ["app", "serve"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def serve(
    engine: Annotated[
        str | None, typer.Option(help="embedded, openai, scripted; vllm and vllm-server come later")
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
    place: Annotated[str | None, typer.Option(hidden=True, help="a worker's place among its siblings")] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning, error; never contains source text")] = "info",
) -> None:
    """Serve completions. Prints `ready http://HOST:PORT` when the first request can be served."""
    from foretype_backend.private import new_token

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
        check_secret_files(config)
        if config.gateway.workers > 1:
            raise typer.Exit(_run_workers(config, log_level))
        _run(config, read, log_level, listen_fd, place)
    except ConfigError as error:
        typer.echo(f"foretype serve: {error}", err=True)
        raise typer.Exit(2) from error


def _run_workers(config: Config, log_level: str) -> int:
    """Several processes on one port; each of them gets the arguments that this one got."""
    from foretype_backend import logs
    from foretype_backend.operations.workers import run_workers
    from foretype_backend.server import address_of, bind

    logs.configure(log_level)
    arguments = sys.argv[sys.argv.index("serve") + 1 :]
    listener = bind(config)
    return asyncio.run(
        run_workers(config.gateway.workers, arguments, listener, lambda: _say_ready(config, address_of(listener)))
    )


def _say_ready(config: Config, address: tuple[str, int]) -> None:
    host, port = address
    scheme = "http" if config.gateway.tls_cert_file is None else "https"
    typer.echo(f"ready {scheme}://{f'[{host}]' if ':' in host else host}:{port}")
    sys.stdout.flush()


def _run(config: Config, read: Callable[[], Config], log_level: str, listen_fd: int | None, place: str | None) -> None:
    from foretype_backend import logs

    logs.configure(log_level)
    if sys.platform == "win32":
        asyncio.run(_main(config, read, listen_fd, place))
        return
    import uvloop

    uvloop.run(_main(config, read, listen_fd, place))


async def _main(config: Config, read: Callable[[], Config], listen_fd: int | None, place: str | None) -> None:
    # Imported here so that `--help` and a wrong option answer at once.
    from foretype_backend.engines.port import EngineUnavailable
    from foretype_backend.launch import make_profile, prepare
    from foretype_backend.operations.certificate import Certificate
    from foretype_backend.operations.workers import end_with_parent
    from foretype_backend.private import announced
    from foretype_backend.server import Address, address_of, bind, inherited, serve_until_told

    if listen_fd is not None:
        end_with_parent()
    certificate = Certificate.of(config)
    parts = prepare(config)
    # Before the model is loaded: a port in use is told at once.
    listener = bind(config) if listen_fd is None else inherited(listen_fd)
    telemetry = identity = None
    loading = asyncio.ensure_future(parts.engine.start())
    await asyncio.sleep(0)  # a model loads in a process of its own; meanwhile this one imports and opens its stores
    try:
        from foretype_backend.app import create_app
        from foretype_backend.doors.health import gateway_version
        from foretype_backend.operations.reload import Reloader
        from foretype_backend.operations.siblings import Place

        where = None if place is None else Place.of(place)
        identity = await _identity(config, _name(address_of(listener), where))
        telemetry = await _telemetry(config)
        salts = _salts(config, identity) if identity is not None or config.engine.name == "vllm-server" else None
        await loading
        if identity is not None and not parts.engine.capabilities().salt:
            raise ConfigError(
                "identity.enabled",
                f"engine `{config.engine.name}` cannot keep the caches of tenants apart; use one with cache salts (vLLM)",
            )
    except (EngineUnavailable, ConfigError) as error:
        listener.close()
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
        await _close(telemetry, identity)
        raise error if isinstance(error, ConfigError) else ConfigError("engine", str(error)) from error
    accounts = writer = leases = quality = siblings = tracing = None
    try:
        tracing = _tracing(config)
        if identity is not None:
            accounts, writer = await _accounts(config)
            leases = _leases(config, accounts)
        profile = make_profile(config, parts)
        quality = _quality(config, parts.tokenizer, accounts, salts)
        if quality is not None:
            await quality.start()
        gateway = create_app(
            config,
            parts.engine,
            parts.tokenizer,
            profile,
            tokenizer_file=parts.tokenizer_file,
            feedback=telemetry,
            identity=identity,
            salts=salts,
            accounts=accounts,
            quality=quality,
            place=where,
            tracing=tracing,
        )
        siblings = gateway.state.siblings
        await siblings.start()
        if leases is not None:
            gateway.state.service.metrics.watch_leases(leases.away_s)
        if certificate is not None:
            gateway.state.service.metrics.watch_certificate(certificate.expires_s)
        if salts is not None:
            _attach(config, gateway, parts.engine, salts, identity)

        def ready(address: Address) -> None:
            host, port = address
            if config.private and config.state_dir is not None and config.token is not None:
                stack.enter_context(
                    announced(config.state_dir, host=host, port=port, token=config.token, version=gateway_version())
                )
            _say_ready(config, address)

        def use(new: Config) -> None:
            profile = make_profile(new, parts)
            if certificate is not None:
                certificate.renew()
            gateway.state.use(new, profile)

        with contextlib.ExitStack() as stack:
            reloader = Reloader(config, read, use)
            reload = None if config.private else reloader.on_signal
            await serve_until_told(
                gateway,
                config,
                listener,
                ready=ready,
                reload=reload,
                certificate=certificate,
                shared=listen_fd is not None,
            )
    finally:
        await _close(quality, leases, writer, siblings, telemetry, identity, tracing)
        await parts.engine.close()


class _Closes(Protocol):
    async def close(self) -> None: ...


async def _close(*parts: _Closes | None) -> None:
    for part in parts:
        if part is not None:
            await part.close()


def _name(address: tuple[str, int], place: Place | None) -> str:
    """Of this process among all gateways: where it listens, and which worker it is."""
    import socket

    name = f"{socket.gethostname()}:{address[1]}"
    return name if place is None else f"{name}/{place.slot}"


async def _identity(config: Config, name: str) -> Identity | None:
    """Who may ask; a store that cannot be read at the start ends the gateway, for it would know nobody."""
    if not config.identity.on:
        return None
    import time

    from foretype_backend.identity.identity import open_identity
    from foretype_backend.prefix.epochs import EpochsUnreadable, read_epochs
    from foretype_backend.telemetry.errors import StoreError

    try:
        identity = await open_identity(
            config.identity,
            identity_url(config),
            clock=time.monotonic,
            wall_ms=lambda: time.time_ns() // 1_000_000,
            name=name,
        )
        if identity.purges is not None:
            await identity.purges.keep(read_epochs(_epochs_path(config)))
        await identity.start()
    except StoreError as error:
        raise ConfigError("identity.url", str(error)) from error
    except EpochsUnreadable as error:
        raise ConfigError("state_dir", str(error)) from error
    return identity


async def _accounts(config: Config) -> tuple[Accounts, UsageWriter]:
    """Budgets and the meter, and the task that stores what was used; it has a connection of its own."""
    import os
    import secrets
    import time
    from datetime import UTC, datetime

    from foretype_backend.admission.accounts import Accounts
    from foretype_backend.identity.store import IdentityStore
    from foretype_backend.identity.usage import UsageWriter

    accounts = Accounts(day=lambda: datetime.now(UTC).strftime("%Y-%m-%d"))
    store = await IdentityStore.open(identity_url(config))
    gateway = f"{os.getpid()}-{secrets.token_hex(8)}"
    writer = UsageWriter(accounts.meter, store, gateway=gateway, wall_ms=lambda: time.time_ns() // 1_000_000)
    writer.start()
    return accounts, writer


def _leases(config: Config, accounts: Accounts) -> RedisLeases | None:
    """Budgets that gateways share; without Redis each of them counts alone."""
    url, slice_s = config.leases.redis_url, config.leases.slice_s
    if url is None:
        return None
    from foretype_backend.admission.leases import Leases

    try:
        from foretype_backend.admission.redis_leases import RedisLeases
    except ImportError as error:
        raise ConfigError("leases.redis_url", "needs `pip install 'foretype[tiers]'`") from error

    clock = asyncio.get_running_loop().time
    leases = Leases(accounts.quotas.budgets, slice_s=slice_s, now=clock())
    try:
        shared = RedisLeases(url, leases, slice_s=slice_s, clock=clock)
    except ValueError as error:
        raise ConfigError("leases.redis_url", f"{error}; it looks like redis://host:6379/0") from error
    shared.start()
    return shared


def _quality(
    config: Config, tokenizer: Tokenizer, accounts: Accounts | None, salts: SaltBook | None
) -> QualityPool | None:
    if config.pool.quality is None:
        return None
    from foretype_backend.chat.pool import open_quality

    return open_quality(config, tokenizer, accounts=accounts, salts=salts)


def _tracing(config: Config) -> Tracing | None:
    """Where spans go. A file that asks for what cannot be ends the start; an environment, which may be inherited, does not."""
    import os
    import time

    from foretype_client.tracing.opening import TracingUnusable, open_tracing

    wanted = config.tracing
    try:
        return open_tracing(
            "foretype-gateway",
            environ=os.environ,
            clock=time.perf_counter,
            endpoint=wanted.endpoint,
            sample_share=wanted.sample_share,
        )
    except TracingUnusable as error:
        if wanted.endpoint is not None:
            raise ConfigError(error.field, error.message) from error
        logging.getLogger("foretype.gateway").warning("no traces: %s", error)
        return None


def identity_url(config: Config) -> str:
    """Where tenants, keys and usage are."""
    return config.identity.url or str(state_dir(config) / "identity" / "identity.db")


def state_dir(config: Config) -> Path:
    """Where what is not configured elsewhere is kept."""
    import platformdirs

    return config.state_dir or platformdirs.user_state_path("foretype")


async def _telemetry(config: Config) -> TelemetrySink | None:
    """Where feedback goes. A store that was named must work; the default one is opened with the first batch."""
    if not config.telemetry.enabled:
        return None
    import time

    from foretype_backend.telemetry.sink import TelemetrySink

    sink = TelemetrySink(
        config.telemetry,
        state_dir(config) / "telemetry",
        clock=time.monotonic,
        wall_ms=lambda: time.time_ns() // 1_000_000,
    )
    if config.telemetry.url is not None:
        from foretype_backend.telemetry.errors import StoreError

        try:
            await sink.open()
        except StoreError as error:
            raise ConfigError("telemetry.url", f"{error}") from error
    return sink


def _attach(config: Config, gateway: Starlette, engine: Engine, salts: SaltBook, identity: Identity | None) -> None:
    """The doors to the prefix cache."""
    from foretype_backend.pools.attach import attach_pool, attach_purger
    from foretype_backend.pools.pool import ReplicaPool

    pool = engine if isinstance(engine, ReplicaPool) else None
    if pool is not None:
        attach_pool(gateway, pool)
    attach_purger(gateway, _purger(config, gateway, salts, identity), pool)


def _purger(config: Config, gateway: Starlette, salts: SaltBook, identity: Identity | None) -> Purger:
    """With an identity store every gateway follows it; without one, the workers of this gateway follow its file."""
    if identity is not None and identity.purges is not None:
        from foretype_backend.identity.purges import StorePurger

        return StorePurger(identity.purges)
    from foretype_backend.prefix.epochs import EpochFile, WorkerPurger

    file, siblings = EpochFile(_epochs_path(config), salts), gateway.state.siblings

    def follow() -> bool:
        file.follow()
        return True

    siblings.answers["epochs"] = follow
    file.follow()  # what was purged while this worker started
    return WorkerPurger(file, lambda: siblings.ask("epochs", bool), slot=siblings.slot)


def _epochs_path(config: Config) -> Path:
    return state_dir(config) / "prefix" / "epochs.json"


def _salts(config: Config, identity: Identity | None) -> SaltBook:
    """Salts of this deployment's secret; every gateway of it needs the same file to share caches."""
    from foretype_backend.prefix.epochs import EpochsUnreadable, read_epochs
    from foretype_backend.prefix.salt import SaltBook

    try:
        secret = read_secret(SALT_FIELD, config.identity.salt_file, state_dir(config) / "identity" / "salt")
        salts = SaltBook(secret, read_epochs(_epochs_path(config)))
    except EpochsUnreadable as error:
        raise ConfigError("state_dir", str(error)) from error
    if identity is not None:
        salts.follow(identity.directory.epochs())
    return salts
