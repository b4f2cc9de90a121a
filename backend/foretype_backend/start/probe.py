"""`foretype config check --probe`: asks everything that a gateway would ask at its start, and leaves it as it was."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from foretype_backend.config.config import Config
from foretype_backend.config.tenants import server_field
from foretype_backend.engines.port import Engine
from foretype_backend.errors import ConfigError, EngineUnavailableError, PromptRefusedError, SaltIgnoredError
from foretype_backend.start.plan import StartPlan
from foretype_backend.start.profile import make_profile

_ANSWER_S: Final = 5.0
_ENGINE_S: Final = 30.0
"""A model is loaded from a disk, or a server is seen to keep salts apart."""
_ANNOUNCED_S: Final = 12.0
"""So long the first of the replicas that are announced may take to come, and so long the others."""


async def probe(config: Config, start: StartPlan) -> list[ConfigError]:
    """Ask engines, stores and issuer, all at once, each within its time. Returns what failed, in the order of the file."""
    asked: list[tuple[str, Coroutine[Any, Any, None], float]] = []
    if config.engine.name not in ("scripted", "vllm"):  # vLLM would take the GPU that a gateway here may be using
        asked.append(("engine", _engine(config, start), _ENGINE_S))
    if config.identity.on and config.identity.url is not None:
        asked.append(("identity.url", _store("identity.url", config.identity.url), _ANSWER_S))
    if config.telemetry.enabled and config.telemetry.url is not None:
        asked.append(("telemetry.url", _store("telemetry.url", config.telemetry.url), _ANSWER_S))
    if config.identity.on and config.leases.redis_url is not None:
        asked.append(("leases.redis_url", _redis("leases.redis_url", config.leases.redis_url), _ANSWER_S))
    if config.pool.fast.retire_url is not None:
        asked.append(("pool.fast.retire_url", _redis("pool.fast.retire_url", config.pool.fast.retire_url), _ANSWER_S))
    if config.identity.oidc is not None:
        asked.append(("identity.oidc.issuer", _issuer(config), _ANSWER_S))
    if start.quality is not None:
        asked.append(("pool.quality.url", _chat(config, start), _ENGINE_S))
    if start.next_edit is not None:
        asked.append(("pool.next_edit.url", _next_edit(config, start), _ENGINE_S))
    outcomes = await asyncio.gather(*(_within(*one) for one in asked))
    return [one for one in outcomes if one is not None]


async def _within(field: str, asking: Coroutine[Any, Any, None], limit_s: float) -> ConfigError | None:
    try:
        async with asyncio.timeout(limit_s):
            await asking
    except ConfigError as error:
        return error
    except TimeoutError:
        return ConfigError(field, f"no answer within {limit_s:g} s; is it there, and does a firewall let it through?")
    return None


async def _engine(config: Config, start: StartPlan) -> None:
    engine = start.parts.engine
    try:
        if config.pool.fast.discovery is None:
            await engine.start()
        else:
            await _announced(engine)
        make_profile(config, start.parts)
    except SaltIgnoredError as error:
        raise ConfigError(server_field(config), str(error)) from error
    except EngineUnavailableError as error:
        raise ConfigError("engine", str(error)) from error
    finally:
        await engine.close()


async def _announced(engine: Engine) -> None:
    """Raises ConfigError: not every replica that is announced would be asked; it says of each why not."""
    from foretype_backend.fleet.members.member import Phase
    from foretype_backend.fleet.pool import ReplicaPool

    assert isinstance(engine, ReplicaPool)
    found = await engine.examine(_ANNOUNCED_S)
    assert found is not None
    told = [f"{one.name} ({one.why.value}): {one.reason}" for one in found.refused]
    told += [f"{name} is {phase.value}" for name, phase in found.phases.items() if phase is Phase.STARTING]
    if found.refused:
        members = [name for name, phase in found.phases.items() if phase is Phase.MEMBER]
        raise ConfigError("pool.fast.discovery", f"{', '.join(members)} would be asked; {'; '.join(told)}")


async def _chat(config: Config, start: StartPlan) -> None:
    from foretype_backend.chat.engine import ChatEngine

    quality = config.pool.quality
    assert start.quality is not None and quality is not None
    engine, _ = start.quality.engines(quality, shared=config.identity.on)
    try:
        await engine.start()
        if isinstance(engine, ChatEngine):  # which asks nothing when it starts
            await engine.ready()
    except (EngineUnavailableError, PromptRefusedError) as error:
        raise ConfigError("pool.quality.url", str(error)) from error
    finally:
        await engine.close()


async def _next_edit(config: Config, start: StartPlan) -> None:
    from foretype_backend.engines.openai.engine import OpenAIEngine

    assert start.next_edit is not None
    engine = OpenAIEngine(start.next_edit.wire, shared=config.identity.on)
    try:
        await engine.start()
    except EngineUnavailableError as error:
        raise ConfigError("pool.next_edit.url", str(error)) from error
    finally:
        await engine.close()


async def _store(field: str, url: str) -> None:
    from foretype_backend.database import look
    from foretype_backend.errors import StoreError
    from foretype_backend.identity.schema import SCHEMA as IDENTITY
    from foretype_backend.telemetry.schema import SCHEMA as TELEMETRY

    try:
        await look(url, IDENTITY if field == IDENTITY.field else TELEMETRY)
    except StoreError as error:
        raise ConfigError(field, str(error)) from error


async def _redis(field: str, url: str) -> None:
    from redis.asyncio import Redis
    from redis.exceptions import RedisError

    client: Any = Redis.from_url(url, socket_timeout=_ANSWER_S, socket_connect_timeout=_ANSWER_S)  # pyright: ignore[reportUnknownMemberType]
    try:
        await client.ping()
    except (RedisError, OSError) as error:
        raise ConfigError(field, f"Redis does not answer ({error}); correct the URL, or start it") from error
    finally:
        await client.aclose()


async def _issuer(config: Config) -> None:
    import httpx

    from foretype_backend.identity.store_watch import http_fetch
    from foretype_backend.identity.tokens import TokenVerifier

    oidc = config.identity.oidc
    assert oidc is not None
    field = "identity.oidc.issuer" if oidc.jwks_url is None else "identity.oidc.jwks_url"
    try:
        TokenVerifier(oidc).use(await http_fetch(oidc.issuer, oidc.jwks_url)())
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as error:
        why = f"HTTP {error.response.status_code}" if isinstance(error, httpx.HTTPStatusError) else _told(error)
        remedy = "until they can be, bearer tokens are refused"
        raise ConfigError(field, f"the issuer's keys cannot be fetched ({why}); {remedy}") from error


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
