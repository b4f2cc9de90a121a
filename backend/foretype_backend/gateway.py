"""One gateway process, from its configuration to its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from foretype_client.faults import keep_texts_out

from foretype_backend.config import Config, ConfigError
from foretype_backend.engines.port import EngineUnavailable
from foretype_backend.launch import make_profile, prepare
from foretype_backend.listening import Address, address_of, bind, inherited
from foretype_backend.operations.certificate import Certificate
from foretype_backend.private import announced

if TYPE_CHECKING:
    from foretype_backend.operations.siblings import Place

__all__ = ["run_gateway"]


async def run_gateway(
    config: Config,
    read: Callable[[], Config],
    *,
    ready: Callable[[Address], None],
    listen_fd: int | None = None,
    place: str | None = None,
) -> None:
    """Serve until told to end; what was opened is closed whatever happens.

    Args:
        read: the configuration as it is now, for a reload.
        ready: called once, when the first request can be served.
        listen_fd: of a worker: the socket that it inherited.
        place: of a worker: its place among its siblings.

    Raises:
        ConfigError: names the field and the remedy; nothing was served.
    """
    keep_texts_out(asyncio.get_running_loop(), logging.getLogger("foretype.gateway"))
    if listen_fd is not None:
        from foretype_backend.operations.workers import end_with_parent

        end_with_parent()
    certificate = Certificate.of(config)
    parts = prepare(config)
    # Before the model is loaded: a port in use is told at once.
    listener = bind(config) if listen_fd is None else inherited(listen_fd)
    async with contextlib.AsyncExitStack() as closing:
        closing.callback(listener.close)
        closing.push_async_callback(parts.engine.close)
        loading = asyncio.ensure_future(parts.engine.start())
        closing.push_async_callback(_given_up, loading)
        await asyncio.sleep(0)  # a model loads in a process of its own; meanwhile this one imports and opens its stores

        from foretype_backend import opening
        from foretype_backend.app import create_app
        from foretype_backend.doors.health import gateway_version
        from foretype_backend.operations.reload import Reloader
        from foretype_backend.operations.siblings import Place
        from foretype_backend.server import serve_until_told

        where = None if place is None else Place.of(place)
        identity = await opening.start_identity(config, _name(address_of(listener), where), closing)
        telemetry = await opening.open_telemetry(config, closing)
        salted = identity is not None or config.engine.name == "vllm-server"
        salts = opening.make_salts(config, identity) if salted else None
        try:
            await loading
        except EngineUnavailable as error:
            raise ConfigError("engine", str(error)) from error
        if identity is not None and not parts.engine.capabilities().salt:
            raise ConfigError(
                "identity.enabled",
                f"engine `{config.engine.name}` cannot keep the caches of tenants apart; use one with cache salts (vLLM)",
            )
        tracing = opening.open_traces(config, closing)
        accounts = None if identity is None else await opening.open_accounts(config, closing)
        leases = None if accounts is None else opening.open_leases(config, accounts, closing)
        quality = await opening.open_quality_pool(config, parts.tokenizer, accounts, salts, closing)
        gateway = create_app(
            config,
            parts.engine,
            parts.tokenizer,
            make_profile(config, parts),
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
        closing.push_async_callback(siblings.close)
        await siblings.start()
        if leases is not None:
            gateway.state.service.metrics.watch_leases(leases.away_s)
        if certificate is not None:
            gateway.state.service.metrics.watch_certificate(certificate.expires_s)
        if salts is not None:
            opening.attach_caches(config, gateway, parts.engine, salts, identity)

        announcement = closing.enter_context(contextlib.ExitStack())

        def tell(address: Address) -> None:
            host, port = address
            if config.private and config.state_dir is not None and config.token is not None:
                announcement.enter_context(
                    announced(config.state_dir, host=host, port=port, token=config.token, version=gateway_version())
                )
            ready(address)

        def use(new: Config) -> None:
            profile = make_profile(new, parts)
            if certificate is not None:
                certificate.renew()
            gateway.state.use(new, profile)

        await serve_until_told(
            gateway,
            config,
            listener,
            ready=tell,
            reload=None if config.private else Reloader(config, read, use).on_signal,
            certificate=certificate,
            shared=listen_fd is not None,
        )


async def _given_up(loading: asyncio.Future[None]) -> None:
    """Nobody waits for the engine any more; what it was started with is closed by its own `close`."""
    loading.cancel()
    await asyncio.gather(loading, return_exceptions=True)


def _name(address: Address, place: Place | None) -> str:
    """Of this process among all gateways: where it listens, and which worker it is."""
    name = f"{socket.gethostname()}:{address[1]}"
    return name if place is None else f"{name}/{place.slot}"
