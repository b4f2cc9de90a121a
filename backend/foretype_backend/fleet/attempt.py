"""One attempt of a request on one replica, and what is written down of it: the router's load, the replica's health, the book of caches, speculation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import NamedTuple

import msgspec

from foretype_backend.engines.port import Chunk, EngineFinish, GenerationRequest
from foretype_backend.errors import EngineUnavailableError
from foretype_backend.fleet.members.replicas import OpenReplica
from foretype_backend.fleet.members.revisions import RevisionBook
from foretype_backend.fleet.routing.router import ReplicaChoice, Router
from foretype_backend.prefix.cache_book import CacheBook, LookUp


class Books(NamedTuple):
    """What is told of an attempt.

    Attributes:
        caches: None where none is believed.
        cached: of the tokens of the prompt that the engine had.
        together: of tokens that came at once, where speculation is judged.
    """

    router: Router
    revisions: RevisionBook
    caches: CacheBook | None
    cached: Callable[[int], None]
    together: Callable[[int], None] | None


class Attempt:
    """See the module.

    Args:
        clock: seconds, the pool's.

    Attributes:
        spoke: whether the replica has said something.
    """

    def __init__(
        self, one: OpenReplica, choice: ReplicaChoice, found: LookUp, books: Books, *, clock: Callable[[], float]
    ) -> None:
        self.spoke = False
        self._one = one
        self._choice = choice
        self._found = found
        self._tokens = len(found.token_ids)
        self._books = books
        self._clock = clock
        self._began = clock()
        self._noted = books.caches is None
        self._served = False
        self._alone = not one.member.health.in_flight
        self._generated: list[int] = []

    async def chunks(self, request: GenerationRequest) -> AsyncGenerator[Chunk]:
        """Ask the replica, in this turn of the loop: what it says. What the request takes is not yielded."""
        origin, max_tokens = self._found.origin, request.params.max_tokens
        self._books.revisions.asked(self._one.member.revision, origin.developer or origin.session)
        self._books.router.begin(self._choice, self._tokens, self._began, max_tokens=max_tokens)
        self._one.member.health.began(self._began)
        # The request leaves with this turn of the loop: while it is under way there is time for the book.
        asyncio.get_running_loop().call_soon(self._note)
        if request.take is not None:
            request = msgspec.structs.replace(request, take=partial(self._taken, request.take))
        stream = self._one.engine.generate(request)
        try:
            async for chunk in stream:
                self._heard(chunk)
                yield chunk
        except EngineUnavailableError:
            self._books.revisions.failed(self._one.member.revision)
            raise
        finally:
            try:
                if isinstance(stream, AsyncGenerator):
                    await stream.aclose()
            finally:  # a replica that does not let go is not waited for: it must not count as busy for ever
                self._ended(max_tokens)

    def _note(self) -> None:
        if self._books.caches is not None and not self._noted:
            self._noted = True
            self._books.caches.sent(self._found, self._choice.replica, self._began)

    def _taken(self, take: Callable[[Chunk], bool], chunk: Chunk) -> bool:
        goes_on = take(chunk)
        if goes_on:  # else it is yielded
            self._heard(chunk)
        return goes_on

    def _heard(self, chunk: Chunk) -> None:
        now, (engine, member), books = self._clock(), self._one, self._books
        member.health.heard(now)
        if not self.spoke:
            self.spoke = True
            books.revisions.first_token(member.revision, now - self._began)
            books.router.prefilled(self._choice, self._tokens)
            if self._alone:
                computed = self._tokens - self._choice.cached_tokens
                books.router.measured(self._choice.replica, computed, now - self._began)
        if self._generated and chunk.token_ids and engine.guesses and books.together is not None:
            books.together(len(chunk.token_ids))
        self._generated += chunk.token_ids
        if chunk.cached_tokens is not None:
            books.cached(chunk.cached_tokens)
        if chunk.finish is not None:
            self._served = chunk.finish is not EngineFinish.ABORTED

    def _ended(self, max_tokens: int) -> None:
        books = self._books
        if not self.spoke:
            books.router.prefilled(self._choice, self._tokens)
        books.router.end(self._choice, self._tokens, max_tokens=max_tokens)
        self._one.member.health.ended(served=self._served)
        self._note()  # of one that was over within its turn
        if books.caches is None:
            return
        now, origin = self._clock(), self._found.origin
        if self._generated:
            books.caches.answered(self._found, self._generated, self._choice.replica, now)
        if not origin.document:  # a stateless client: there is no session that could end
            books.caches.left(origin.session, now)
