"""A server that tenants share: each request has a salt, and none is sent before the server was seen to keep salts apart.

That is at the start, and again when it was lost or is another process (:mod:`foretype_backend.engines.salting`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Sequence
from typing import Any, ClassVar

import httpx
from foretype_wire.tasks import end_tasks

from foretype_backend.engines.openai.events import OpenAIConfig
from foretype_backend.engines.openai.server import HttpServer
from foretype_backend.engines.salting import (
    SaltProof,
    as_text,
    as_token_ids,
    cached_tokens_of,
    prompt_lengths,
    prove_apart,
)
from foretype_backend.engines.vllm.metrics import LOOK_EVERY_S, VllmMetrics, read_metrics
from foretype_backend.errors import EngineUnavailableError, Fault, PromptRefusedError, SaltIgnoredError


class SharedServer(HttpServer):
    """One server that one tenant or many reach.

    Args:
        shared: tenants that do not trust each other reach it: each request must have a salt, and the server must keep salts apart.
    """

    scrapes: ClassVar[bool] = True
    """Whether a shared server's process is looked at by the engine itself; else :meth:`scrape` is called by the pool that owns it."""

    def __init__(self, config: OpenAIConfig, *, shared: bool) -> None:
        super().__init__(config)
        self._shared = shared
        self._salting = SaltProof(self._prove_salts, time.monotonic)
        self._looking: asyncio.Task[None] | None = None
        self.metrics = VllmMetrics()

    async def keep_apart(self) -> None:
        """Returns at once where the engine has one tenant, else when the server is known to keep salts apart.

        Raises:
            SaltIgnoredError: it does not.
            EngineUnavailableError: it is away.
        """
        if self._shared:
            await self._salting.hold()

    async def _prove_salts(self) -> None:
        await self.scrape()
        for model in self._models():
            ask = functools.partial(self._ask_salted, model)
            lengths = prompt_lengths(self.metrics.block_tokens, self._context_limit_tokens)
            await prove_apart(ask, lengths, self._config.url)

    def _models(self) -> tuple[str, ...]:
        """Whatever requests may name."""
        return (self._model,)

    async def _ask_salted(self, model: str, prompt: Sequence[int], salt: str) -> int:
        body = self._salted_body(prompt) | {"model": model}
        try:
            reply = await self._request("POST", self.path, body | {"cache_salt": salt})
        except PromptRefusedError as error:
            try:
                await self._request("POST", self.path, body)
            except PromptRefusedError:  # refused with a salt and without: it is no server of completions
                raise EngineUnavailableError(str(error), fault=Fault.ERROR) from None
            raise SaltIgnoredError(
                f"{error}; so it cannot keep tenants apart. Put `vllm serve` there, which takes `cache_salt`"
            ) from None
        return cached_tokens_of(reply, self._config.url)

    def _salted_body(self, prompt: Sequence[int]) -> dict[str, Any]:
        return self._body(as_token_ids(prompt) if self._features.token_ids else as_text(prompt), 1, {})

    def _salt(self, salt: str | None) -> str:
        if not salt:
            raise PromptRefusedError("tenants share the engine and the request has no cache salt; configure identities")
        return salt

    async def scrape(self) -> VllmMetrics:
        """Read `/metrics`. Another process than before has everything to prove again.

        What it does not say stays as it was, except how full its cache is: an old figure of that is wrong.
        """
        said = False
        with contextlib.suppress(httpx.HTTPError, ValueError):
            response = await self._http().get(self._config.root("/metrics"))
            if response.status_code == 200:
                before, self.metrics = self.metrics.started_s, read_metrics(response.text)
                said = True
                if before is not None and before != self.metrics.started_s:
                    self._salting.forget()
        if not said:
            self.metrics = self.metrics._replace(kv_use=None)
        return self.metrics

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self.scrape()

    async def _hang_up(self) -> None:
        looking, self._looking = self._looking, None
        await end_tasks(looking)
        await self._salting.close()
        self._salting.forget()
        await super()._hang_up()
