"""Prompts computed apart: a replica with the role `prefill` computes what nobody has cached, and the one that answers loads it.

It is handed over by a tier of the cache that both read, or by what the first tells the second (NIXL). Where that fails,
the replica that answers computes the prompt itself: a hand-over can cost time, and never an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

from foretype_backend.engines.port import GenerationRequest
from foretype_backend.errors import EngineUnavailableError, NoReplicaError, PromptRefusedError
from foretype_backend.fleet.members.replicas import Members, OpenReplica
from foretype_backend.fleet.routing.router import Router, RoutingOptions
from foretype_backend.prefix.cache_book import CacheBook, LookUp
from foretype_backend.prefix.origin import Origin

HandOver = Literal["tier", "nixl"]
_NIXL: Final = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}


_TIER_TOKENS: Final = 4
"""Blocks go to the tiers in the steps after the one that computed them: without further ones the last of them never would."""


class ApartOptions(NamedTuple):
    """Which prompts are computed apart.

    Attributes:
        from_tokens: those of which so many tokens are cached on no replica that answers.
    """

    from_tokens: int
    hand_over: HandOver = "tier"


class ApartStatistics(NamedTuple):
    """Prompts that were computed apart; `failed` ones were computed again by the replica that answered."""

    handed: int
    failed: int


class PrefillApart:
    """See the module.

    Args:
        allowed: of these replicas, those that a request may use; None for all of them.
        fault: told of a replica that failed.
        clock: seconds, the pool's.
    """

    def __init__(
        self,
        options: ApartOptions,
        members: Members,
        *,
        routing: RoutingOptions,
        book: CacheBook,
        allowed: Callable[[Origin, Iterable[str]], frozenset[str] | None],
        fault: Callable[[OpenReplica, EngineUnavailableError], None],
        clock: Callable[[], float],
    ) -> None:
        self._options = options
        self._members = members
        self._router = Router(routing)
        self._book = book
        self._allowed = allowed
        self._fault = fault
        self._clock = clock
        self._live: dict[str, asyncio.Task[Mapping[str, Any]]] = {}
        self._handed = self._failed = 0

    def set_replicas(self, names: Iterable[str]) -> None:
        self._router.set_replicas(names)

    def statistics(self) -> ApartStatistics:
        return ApartStatistics(self._handed, self._failed)

    def abort(self, request_id: str) -> None:
        task = self._live.get(request_id)
        if task is not None:
            task.cancel()

    async def compute(self, request: GenerationRequest, found: LookUp, answering: Iterable[str]) -> Mapping[str, Any]:
        """Returns what the request to the answering replica says of it; empty if it is not computed apart."""
        tokens = len(found.token_ids)
        cached = max((found.held.get(name, 0) for name in answering), default=0)
        if tokens - cached < self._options.from_tokens:
            return {}
        origin = found.origin
        only = self._allowed(origin, self._router.replicas)
        try:
            choice = self._router.choose(
                origin.tenant, origin.repository, origin.session, tokens, found.held, only=only
            )
        except NoReplicaError:
            return {}
        one, began = self._members[choice.replica], self._clock()
        self._router.begin(choice, tokens, began, max_tokens=1)
        one.member.health.began(began)
        self._book.sent(found, choice.replica, began)
        parameters = _NIXL if self._options.hand_over == "nixl" else {"max_offload_tokens": tokens}
        steps = 1 if self._options.hand_over == "nixl" else _TIER_TOKENS
        task = self._live[request.id] = asyncio.create_task(one.engine.prefill(request, parameters, max_tokens=steps))
        served = False
        try:
            said = await task
            served = True
            self._handed += 1
            return _remote(said) if self._options.hand_over == "nixl" else {}
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                task.cancel()
                raise
            return {}  # aborted by its id
        except EngineUnavailableError as error:
            self._failed += 1
            self._fault(one, error)
            return {}
        except PromptRefusedError:
            self._failed += 1  # the replica that answers will say so
            return {}
        finally:
            del self._live[request.id]
            now = self._clock()
            if served:
                one.member.health.heard(now)
            one.member.health.ended(served=served)
            self._router.prefilled(choice, tokens)
            self._router.end(choice, tokens, max_tokens=1)


def _remote(said: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a replica said of the blocks that it holds for another one."""
    return said if said.get("do_remote_prefill") else {}
