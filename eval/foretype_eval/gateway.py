"""The gateway that a benchmark talks to: one that the user names, or a private one of its own, with its own state."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import tempfile
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

import msgspec
from foretype_client.ports import Endpoint
from foretype_client.private_gateway.finding import find_gateway
from foretype_client.private_gateway.starting import ensure_gateway
from foretype_client.session.session import Session
from foretype_context.prompt.assemble import Assembler
from foretype_context.prompt.profile import Profile
from foretype_context.tokens.tokenizer import tokenizer_from_bytes

_START_TIMEOUT_S: Final = 300.0
"""On a core that others use a network of 145 MB was not ready in one minute; nobody waits for a bench as for an editor."""
_STOP_TIMEOUT_S: Final = 5.0


class GatewayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which gateway to measure.

    Attributes:
        url: `ws://host:port/v1/stream` of a running one; None starts a private one.
        token: bearer token of that one.
        token_in_clear: send it over `ws://` to another machine too.
        engine, model, profile: for a private one: name of the engine, model file, profile file.
    """

    url: str | None = None
    token: str | None = None
    token_in_clear: bool = False
    engine: str | None = None
    model: Path | None = None
    profile: Path | None = None

    def arguments(self) -> list[str]:
        arguments: list[str] = []
        if self.engine is not None:
            arguments += ["--engine", self.engine]
        if self.profile is not None:
            arguments += ["--profile", str(self.profile.resolve())]
        return arguments


class Connected(msgspec.Struct, frozen=True, kw_only=True):
    """A session that has its profile, and an assembler for that profile."""

    endpoint: Endpoint
    session: Session
    profile: Profile
    tokenizer_json: bytes

    def assembler(self, *, layout: str | None = None, prompt_tokens: int | None = None) -> Assembler:
        """An assembler for the gateway's profile, or for one with another layout or prompt budget."""
        profile = self.profile
        if layout is not None:
            profile = msgspec.structs.replace(profile, layout=layout)
        if prompt_tokens is not None:
            budgets = msgspec.structs.replace(profile.budgets, prompt_tokens=prompt_tokens)
            profile = msgspec.structs.replace(profile, budgets=budgets)
        return Assembler(tokenizer_from_bytes(self.tokenizer_json), profile)


@contextlib.asynccontextmanager
async def private_gateway(options: GatewayOptions, *, state_dir: Path | None = None) -> AsyncGenerator[Endpoint]:
    """Start a gateway that nobody else shares, and stop it in the end. Raises GatewayStartError."""
    with contextlib.ExitStack() as stack:
        if state_dir is None:
            state_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="foretype-bench-")))
        endpoint = await ensure_gateway(
            state_dir,
            model=options.model,
            clock=time.monotonic,
            linger_s=30.0,
            arguments=options.arguments(),
            timeout_s=_START_TIMEOUT_S,
        )
        record = await find_gateway(state_dir)
        try:
            yield endpoint
        finally:
            if record is not None:
                await stop_gateway(record.pid)


async def stop_gateway(pid: int, number: int = signal.SIGTERM) -> None:
    """Ask a gateway to end by this signal; kill it if it does not."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while time.monotonic() < deadline:
            await asyncio.sleep(0.05)
            os.kill(pid, 0)
        os.kill(pid, signal.SIGKILL)


@contextlib.asynccontextmanager
async def connected(options: GatewayOptions, *, client_name: str = "foretype-eval") -> AsyncGenerator[Connected]:
    """Connect to the gateway that `options` names, or to a private one that lives as long as this context.

    Raises:
        GatewayGoneError: it cannot be reached or started; the message says why.
    """
    async with contextlib.AsyncExitStack() as stack:
        if options.url is not None:
            endpoint = Endpoint(options.url, options.token, options.token_in_clear)
        else:
            endpoint = await stack.enter_async_context(private_gateway(options))
        cache = stack.enter_context(tempfile.TemporaryDirectory(prefix="foretype-bench-"))
        session = Session(
            endpoint.url,
            token=endpoint.token,
            token_in_clear=endpoint.token_in_clear,
            client_name=client_name,
            clock=time.monotonic,
            rng=random.Random(0),
            cache_dir=Path(cache),
        )
        await session.start()
        stack.push_async_callback(session.close)
        profile = await session.ready()
        yield Connected(
            endpoint=endpoint, session=session, profile=profile, tokenizer_json=await session.tokenizer_json()
        )
