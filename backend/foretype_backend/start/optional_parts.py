"""The parts that a configuration asks for, each opened, and closed by the stack that it is entered in.

What cannot be opened is a ConfigError that names the field. Imports stand where they are needed: a gateway of one user loads no
library of databases, of Redis or of traces.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import secrets
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from foretype_backend.config.config import Config
from foretype_backend.config.secret_files import SALT_FIELD, read_secret
from foretype_backend.config.state_files import epochs_path, identity_url, own_salt_path, state_dir, usage_path
from foretype_backend.errors import ConfigError

if TYPE_CHECKING:
    from foretype_wire.tracing.spans import Tracing

    from foretype_backend.admission.redis_leases import RedisLeases
    from foretype_backend.chat.edit_pool import EditPool
    from foretype_backend.chat.pool import QualityPool
    from foretype_backend.engines.port import Engine
    from foretype_backend.experiments.live import LiveExperiments
    from foretype_backend.identity.accounts import Accounts
    from foretype_backend.identity.identity import Identity
    from foretype_backend.prefix.purge_report import Purger
    from foretype_backend.prefix.salt import SaltBook
    from foretype_backend.start.app import Gateway
    from foretype_backend.start.plan import StartPlan
    from foretype_backend.telemetry.sink import TelemetrySink

_log = logging.getLogger("foretype.gateway")


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


async def start_identity(config: Config, name: str, closing: AsyncExitStack) -> Identity | None:
    """Who may ask. A store that cannot be read at the start ends the gateway: it would let nobody in.

    Args:
        name: of this process among all gateways of the store.
    """
    if not config.identity.on:
        return None
    from foretype_backend.errors import EpochFileError, StoreError
    from foretype_backend.identity.audit import open_log
    from foretype_backend.identity.identity import open_identity
    from foretype_backend.prefix.epochs import read_epochs

    url = identity_url(config)
    try:
        audit = open_log(config, url, actor=f"gateway {name}")
        identity = await open_identity(
            config.identity, url, clock=time.monotonic, wall_ms=_wall_ms, name=name, audit=audit
        )
        closing.push_async_callback(identity.close)
        if identity.purges is not None and not identity.watch.from_copy:
            await identity.purges.keep(read_epochs(epochs_path(config)))
        await identity.start()
    except StoreError as error:
        raise ConfigError("identity.url", str(error)) from error
    except EpochFileError as error:
        raise ConfigError("state_dir", str(error)) from error
    return identity


async def open_accounts(config: Config, closing: AsyncExitStack) -> Accounts:
    """Budgets and the meter; a task stores what was used, over a connection of its own."""
    from datetime import UTC, datetime

    from foretype_backend.identity.accounts import Accounts
    from foretype_backend.identity.store import IdentityStore
    from foretype_backend.identity.usage import UsageWriter
    from foretype_backend.identity.usage_journal import UsageJournal

    accounts = Accounts(day=lambda: datetime.now(UTC).strftime("%Y-%m-%d"), share=config.leases.share)
    store = await IdentityStore.open(identity_url(config), read_url=config.identity.read_url)
    gateway = f"{os.getpid()}-{secrets.token_hex(8)}"
    folder = usage_path(config)
    try:
        journal = UsageJournal(folder, gateway)
    except OSError as error:
        await store.close()
        told = f"{folder} cannot be written to ({error.strerror}): usage waits there until it is stored; name a directory that can"
        raise ConfigError("state_dir", told) from error
    writer = UsageWriter(accounts.meter, store, gateway=gateway, wall_ms=_wall_ms, journal=journal)
    closing.push_async_callback(writer.close)
    writer.start()
    return accounts


def open_leases(config: Config, accounts: Accounts, closing: AsyncExitStack) -> RedisLeases | None:
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
    closing.push_async_callback(shared.close)
    shared.start()
    accounts.spend_from(shared)
    return shared


async def open_quality_pool(
    config: Config,
    start: StartPlan,
    accounts: Accounts | None,
    salts: SaltBook | None,
    tracing: Tracing | None,
    closing: AsyncExitStack,
) -> QualityPool | None:
    """Chat and whole blocks. A server that is away ends the start only where blocks may go nowhere else."""
    if start.quality is None:
        return None  # without its libraries

    from foretype_backend.chat.pool import open_quality
    from foretype_backend.errors import EngineUnavailableError

    pool = open_quality(
        config, start.parts.tokenizer, parts=start.quality, accounts=accounts, salts=salts, tracing=tracing
    )
    if pool is None:
        return None
    closing.push_async_callback(pool.close)
    try:
        await pool.start()
    except EngineUnavailableError as error:
        raise ConfigError("pool.quality.url", str(error)) from error
    return pool


async def open_edits(
    config: Config,
    start: StartPlan,
    accounts: Accounts | None,
    salts: SaltBook | None,
    tracing: Tracing | None,
    closing: AsyncExitStack,
) -> EditPool | None:
    """A model for next edits on a server of its own. One that is away keeps nobody from starting."""
    if start.next_edit is None:
        return None  # without its libraries

    from foretype_backend.chat.edit_pool import open_edit_pool
    from foretype_backend.errors import SaltIgnoredError

    pool = open_edit_pool(config, parts=start.next_edit, accounts=accounts, salts=salts, tracing=tracing)
    if pool is None:
        return None
    closing.push_async_callback(pool.close)
    try:
        await pool.start()
    except SaltIgnoredError as error:
        raise ConfigError("pool.next_edit.url", str(error)) from error
    return pool


def open_traces(config: Config, closing: AsyncExitStack) -> Tracing | None:
    """Where spans go. A file that asks for what cannot be ends the start; an environment, which may be inherited, does not."""
    from foretype_wire.errors import TracingError
    from foretype_wire.tracing.opening import open_tracing

    wanted = config.tracing
    try:
        tracing = open_tracing(
            "foretype-gateway",
            environ=os.environ,
            clock=time.perf_counter,
            endpoint=wanted.endpoint,
            sample_share=wanted.sample_share,
        )
    except TracingError as error:
        if wanted.endpoint is not None:
            raise ConfigError(error.field, error.message) from error
        _log.warning("no traces: %s", error)
        return None
    if tracing is not None:
        closing.push_async_callback(tracing.close)
    return tracing


async def open_telemetry(config: Config, closing: AsyncExitStack) -> TelemetrySink | None:
    """Where feedback goes. A store that was named must work; the default one is opened with the first batch."""
    if not config.telemetry.enabled:
        return None
    from foretype_backend.errors import StoreError
    from foretype_backend.telemetry.sink import TelemetrySink

    sink = TelemetrySink(config.telemetry, state_dir(config) / "telemetry", clock=time.monotonic, wall_ms=_wall_ms)
    closing.push_async_callback(sink.close)
    if config.telemetry.url is not None:
        try:
            await sink.open()
        except StoreError as error:
            raise ConfigError("telemetry.url", f"{error}") from error
    sink.start()
    return sink


async def open_experiments(
    config: Config, name: str, identity: Identity | None, telemetry: TelemetrySink | None, closing: AsyncExitStack
) -> LiveExperiments | None:
    """Live experiments of the identity store; without one there are none.

    Args:
        name: of this process among all gateways.
    """
    if identity is None:
        return None
    from foretype_backend.errors import StoreError
    from foretype_backend.experiments.live import LiveExperiments
    from foretype_backend.experiments.store import ExperimentStore
    from foretype_backend.identity.store import audited

    try:
        store = await closing.enter_async_context(audited(config, actor=f"gateway {name}"))
    except StoreError as error:
        raise ConfigError("identity.url", str(error)) from error
    return LiveExperiments(
        ExperimentStore(store),
        name=f"{name}/{secrets.token_hex(4)}",
        wall_ms=_wall_ms,
        telemetry=None if telemetry is None else telemetry.open,
    )


def make_salts(config: Config, identity: Identity | None) -> SaltBook:
    """Salts of this deployment's secret; every gateway of it needs the same file to share caches."""
    from foretype_backend.errors import EpochFileError
    from foretype_backend.prefix.epochs import read_epochs
    from foretype_backend.prefix.salt import SaltBook

    try:
        secret = read_secret(SALT_FIELD, config.identity.salt_file, own_salt_path(config))
        salts = SaltBook(secret, read_epochs(epochs_path(config)))
    except EpochFileError as error:
        raise ConfigError("state_dir", str(error)) from error
    if identity is not None:
        salts.follow(identity.directory.epochs())
    return salts


def attach_caches(
    config: Config,
    gateway: Gateway,
    engine: Engine,
    salts: SaltBook,
    identity: Identity | None,
    quality: QualityPool | None = None,
) -> None:
    """The doors to the prefix cache: what is in it, where the engine is a pool that knows, and its purge."""
    from foretype_backend.fleet.doors import attach_pool, attach_purger, follow_sessions
    from foretype_backend.fleet.pool import ReplicaPool

    pool = engine if isinstance(engine, ReplicaPool) else None
    if pool is not None:
        attach_pool(gateway.app, gateway.stream, pool)
    if quality is not None:
        for service in (quality.chat, *(() if quality.block is None else (quality.block.service,))):
            if isinstance(service.engine, ReplicaPool):
                follow_sessions(gateway.stream, service.engine)
    attach_purger(gateway.app, _purger(config, gateway, salts, identity), pool)


def _purger(config: Config, gateway: Gateway, salts: SaltBook, identity: Identity | None) -> Purger:
    """With an identity store every gateway follows it; without one, the workers of this gateway follow its file."""
    if identity is not None and identity.purges is not None:
        from foretype_backend.identity.store_purges import StorePurger

        return StorePurger(identity.purges)
    from foretype_backend.prefix.epochs import EpochFile, WorkerPurger

    file, peers = EpochFile(epochs_path(config), salts), gateway.peers

    def follow() -> bool:
        file.follow()
        return True

    peers.answer_to("epochs", follow)
    file.follow()  # what was purged while this worker started
    return WorkerPurger(
        file, lambda: peers.ask("epochs", bool), note=functools.partial(_note_purge, config), slot=peers.slot
    )


async def _note_purge(config: Config, tenant: str, scope: str, actor: str) -> None:
    """In the audit log of the store that this gateway would have. Raises PurgeError: nothing is purged then."""
    from foretype_backend.errors import PurgeError, StoreError
    from foretype_backend.identity.audit_chain import Act
    from foretype_backend.identity.store import audited

    try:
        async with audited(config) as store:
            await store.note(Act("purge", scope, tenant, actor=actor or "gateway"))
    except (ConfigError, StoreError) as error:
        raise PurgeError(f"it cannot be written to the audit log ({error})") from error
