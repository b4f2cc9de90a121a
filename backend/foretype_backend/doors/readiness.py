"""Whether a completion can be served now, for `/readyz`. Asked for as often as anybody likes, found out at most once a second.

Stores are not asked: identities, budgets and salts are in memory once a gateway has started, and a store that goes away takes nobody's
completion with it. What is needed on the path is the engine, and somebody whose credential could be taken.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from foretype_wire.redaction import log_fault

from foretype_backend.engines.port import Engine
from foretype_backend.errors import EngineUnavailableError, PromptRefusedError

_log = logging.getLogger("foretype.gateway")

_FRESH_S: Final = 1.0
_ANSWER_S: Final = 0.7
"""A kubelet gives a probe one second; meanwhile what was found last is told."""
_CHECK_S: Final = 5.0
"""A server that is busy may take its time: slow is not away."""


class UnreadyReason(StrEnum):
    """The reason that is told; no address or message of what is behind the gateway."""

    DRAINING = "draining"
    ENGINE = "engine"
    ISSUER = "issuer"


class Readiness:
    """At most one check of the engine is under way, for all that ask.

    Args:
        draining: clients are asked to move.
        admits: False where nobody's credential could be taken.
    """

    def __init__(self, engine: Engine, *, draining: Callable[[], bool], admits: Callable[[], bool]) -> None:
        self._engine = engine
        self._draining = draining
        self._admits = admits
        self._able = True  # a gateway listens once its engine has started
        self._found_s = float("-inf")
        self._check: asyncio.Task[None] | None = None

    async def unready(self) -> UnreadyReason | None:
        """Why no completion can be served; None where one can."""
        if self._draining():
            return UnreadyReason.DRAINING
        if not self._admits():
            return UnreadyReason.ISSUER
        if self._check is None and asyncio.get_running_loop().time() - self._found_s >= _FRESH_S:
            self._check = asyncio.create_task(self._look(), name="readiness")
        if self._check is not None:
            await asyncio.wait({self._check}, timeout=_ANSWER_S)
        return None if self._able else UnreadyReason.ENGINE

    async def _look(self) -> None:
        try:
            async with asyncio.timeout(_CHECK_S):
                await self._engine.ready()
            self._able = True
        except (EngineUnavailableError, PromptRefusedError, TimeoutError):
            self._able = False
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the check, nothing says that the engine is able
            self._able = False
            log_fault(_log, "asking whether the engine is ready failed", error)
        finally:
            self._found_s, self._check = asyncio.get_running_loop().time(), None
