"""One gateway process, from its configuration to its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from foretype_wire.redaction import keep_texts_out

from foretype_backend.config.config import Config
from foretype_backend.config.tenants import cannot_keep_apart, server_field
from foretype_backend.errors import ConfigError, EngineUnavailableError, SaltIgnoredError
from foretype_backend.start.announcement import StillAnnounced, announced
from foretype_backend.start.plan import plan, salted
from foretype_backend.start.profile import make_profile
from foretype_backend.transport.sockets import Address, Inherited, address_of, bind, bind_metrics, inherited_socket

if TYPE_CHECKING:
    from foretype_backend.engines.embedded.process import EngineProcess
    from foretype_backend.operations.worker_peers import WorkerAddress


class StartPhases:
    """Measures phases that follow each other, and one that runs beside them.

    - `plan`: configuration, parts, sockets;
    - `stores`: imports, identities, telemetry, while the engine loads;
    - `engine`: from the end of the plan until the engine could be asked: process, weights, compilation;
    - `canary`: an answer from each server that computes;
    - `doors`: the rest, until the first request could be served.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began = clock()
        self._ended: dict[str, float] = {}
        self.seconds: dict[str, float] = {}
        """Of the phases that are over, by name."""

    def over(self, phase: str) -> None:
        """A phase is over that began when the last one ended."""
        now = self._clock()
        self.seconds[phase], self._began = now - self._began, now
        self._ended[phase] = now

    def overall(self, phase: str, *, since: str) -> None:
        """A phase is over that began with the end of another, and ran beside those since then."""
        self.seconds[phase] = self._clock() - self._ended[since]

    def skip(self) -> None:
        """What was waited for since the last phase belongs to one that ran beside."""
        self._began = self._clock()


async def run_gateway(
    config: Config,
    read: Callable[[], Config],
    *,
    ready: Callable[[Address], None],
    inherited: Inherited = Inherited(),  # noqa: B008 - it is empty and cannot change
    begun: EngineProcess | None = None,
) -> None:
    """Serve until told to end; what was opened is closed whatever happens.

    Args:
        read: the configuration as it is now, for a reload.
        ready: called once, when the first request can be served.
        inherited: what a worker got from its parent.
        begun: a process for the embedded engine; the caller closes it, too.

    Raises:
        ConfigError: names the field and the remedy; nothing was served.
    """
    keep_texts_out(asyncio.get_running_loop(), logging.getLogger("foretype.gateway"))
    is_worker = inherited.listen_fd is not None
    if is_worker:
        from foretype_backend.operations.workers import end_with_parent

        end_with_parent()
    phases = StartPhases()
    start = plan(config)
    certificate, parts = start.certificate, start.parts
    if begun is not None:
        from foretype_backend.engines.embedded.engine import EmbeddedEngine

        if isinstance(parts.engine, EmbeddedEngine):
            parts.engine.use(begun)
    # Before the model is loaded: a port in use is told at once.
    listener, metrics_listener = _listeners(config, inherited)
    async with contextlib.AsyncExitStack() as closing:
        closing.callback(listener.close)
        if metrics_listener is not None:
            closing.callback(metrics_listener.close)
        closing.push_async_callback(parts.engine.close)
        phases.over("plan")
        loading = asyncio.ensure_future(parts.engine.start())
        loading.add_done_callback(lambda _: phases.overall("engine", since="plan"))
        closing.push_async_callback(_given_up, loading)
        await asyncio.sleep(0)  # a model loads in a process of its own; meanwhile this one imports and opens its stores

        from foretype_backend.doors.health import gateway_version
        from foretype_backend.operations.reload import Reloader
        from foretype_backend.operations.worker_peers import WorkerAddress
        from foretype_backend.start import optional_parts
        from foretype_backend.start.app import create_app
        from foretype_backend.start.server_canary import check_blocks, check_server
        from foretype_backend.transport.loop_monitor import LoopWatch
        from foretype_backend.transport.server import serve_until_told

        where = None if inherited.place is None else WorkerAddress.of(inherited.place)
        identity = await optional_parts.start_identity(config, _name(address_of(listener), where), closing)
        telemetry = await optional_parts.open_telemetry(config, closing)
        salts = optional_parts.make_salts(config, identity) if salted(config) else None
        phases.over("stores")
        try:
            await loading
        except SaltIgnoredError as error:
            raise ConfigError(server_field(config), str(error)) from error
        except EngineUnavailableError as error:
            raise ConfigError("engine", str(error)) from error
        if identity is not None and not parts.engine.capabilities().salt:
            raise cannot_keep_apart(config)
        phases.skip()
        profile = make_profile(config, parts)
        if await check_server(config, parts, layout=profile.layout):
            phases.over("canary")
        tracing = optional_parts.open_traces(config, closing)
        accounts = None if identity is None else await optional_parts.open_accounts(config, closing)
        leases = None if accounts is None else optional_parts.open_leases(config, accounts, closing)
        quality = await optional_parts.open_quality_pool(config, start, accounts, salts, tracing, closing)
        if quality is not None and quality.block is not None:
            await check_blocks(quality.block)
        edits = await optional_parts.open_edits(config, start, accounts, salts, tracing, closing)
        named = _name(address_of(listener), where)
        experiments = await optional_parts.open_experiments(config, named, identity, telemetry, closing)
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
            edit_pool=edits,
            place=where,
            tracing=tracing,
            experiments=experiments,
            revisions=start.revisions,
        )
        closing.callback(gateway.encoding.close)
        if gateway.chooser is not None:
            from foretype_backend.start.revisions import open_revisions

            await open_revisions(gateway.stream, gateway.chooser, start.revisions, closing)
        if experiments is not None:
            closing.push_async_callback(experiments.close)
            await experiments.start()
        peers = gateway.peers
        closing.push_async_callback(peers.close)
        await peers.start()
        if leases is not None:
            gateway.service.metrics.watch_leases(leases.away_s)
        if certificate is not None:
            gateway.service.metrics.watch_certificate(certificate.expires_s)
        if salts is not None:
            optional_parts.attach_caches(config, gateway, parts.engine, salts, identity, quality)

        if metrics_listener is not None:
            from foretype_backend.operations.metrics_port import serving_metrics

            await closing.enter_async_context(serving_metrics(peers.metrics, config, metrics_listener))

        announcement = closing.enter_context(contextlib.ExitStack())

        def tell(address: Address) -> None:
            host, port = address
            if config.private and config.state_dir is not None and config.token is not None:
                announcement.enter_context(
                    announced(config.state_dir, host=host, port=port, token=config.token, version=gateway_version())
                )
            phases.over("doors")
            gateway.service.metrics.watch_start(phases.seconds)
            ready(address)

        def use(new: Config) -> None:
            profile = make_profile(new, parts)
            if certificate is not None:
                certificate.renew()
            gateway.use(new, profile)

        await serve_until_told(
            gateway.app,
            gateway.stream,
            LoopWatch(gateway.late, gateway.working),
            config,
            listener,
            ready=tell,
            reload=None if config.private else Reloader(config, read, use).on_signal,
            certificate=certificate,
            shared=is_worker,
            current=_still_found(config),
        )


def _still_found(config: Config) -> Callable[[], bool] | None:
    """Whether clients that look for this private gateway find it; None where none do."""
    folder, token = config.state_dir, config.token
    if not config.private or folder is None or token is None:
        return None
    return StillAnnounced(folder, token)


def _listeners(config: Config, inherited: Inherited) -> tuple[socket.socket, socket.socket | None]:
    """For the doors, and for metrics where they have a port of their own. Raises ConfigError."""
    if inherited.listen_fd is not None:
        metrics_fd = inherited.metrics_fd
        return inherited_socket(inherited.listen_fd), None if metrics_fd is None else inherited_socket(metrics_fd)
    listener = bind(config)
    try:
        return listener, bind_metrics(config)
    except ConfigError:
        listener.close()
        raise


async def _given_up(loading: asyncio.Future[None]) -> None:
    """Nobody waits for the engine any more; what it was started with is closed by its own `close`."""
    loading.cancel()
    await asyncio.gather(loading, return_exceptions=True)


def _name(address: Address, place: WorkerAddress | None) -> str:
    """Of this process among all gateways: where it listens, and which worker it is."""
    name = f"{socket.gethostname()}:{address[1]}"
    return name if place is None else f"{name}/{place.slot}"
