"""Whether a server keeps caches apart by salts. Only requests can show it, since servers accept fields that they do not know.

A prompt that nobody has sent before is sent under a new salt until the server reports cached tokens of that prompt. Under any other
salt the server must then report none. A server that reports no counts proves nothing, and gets no prompts of tenants.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

from foretype_wire.tasks import end_tasks

from foretype_backend.errors import SaltIgnoredError

_NUMBERS: Final = 200
_OTHER_SALTS: Final = 2
_REPEATS: Final = 2
_LONGEST_TOKENS: Final = 4097
_REFUSED_FOR_S: Final = 5.0

Ask = Callable[[Sequence[int], str], Awaitable[int]]
"""A prompt of that many random numbers under a salt → the cached tokens that the server reports, 0 where it reports none."""


def prompt_lengths(block_tokens: int, context_limit_tokens: int) -> Iterator[int]:
    """Lengths of the prompts of a probe, in tokens. Caches hold only whole blocks, so a prompt has to fill one.

    Args:
        block_tokens: block size of the server's cache; 0 if unknown: then the lengths grow up to the longest blocks there are.
    """
    most = max(1, min(_LONGEST_TOKENS, context_limit_tokens // 4))
    if block_tokens:
        yield min(2 * block_tokens + 1, context_limit_tokens // 2)
        return
    length = 65
    while length < most:
        yield length
        length = (length - 1) * 4 + 1
    yield most


async def prove_apart(ask: Ask, lengths: Iterator[int], name: str) -> None:
    """Returns once the server has been seen to keep salts apart. Leaves at most five prompts of one generated token per length behind.

    Args:
        name: of the server, for messages.

    Raises:
        SaltIgnoredError: the server does not keep salts apart, or reports no cached tokens.
    """
    for length in lengths:
        prompt = [secrets.randbelow(_NUMBERS) for _ in range(length)]
        salt = secrets.token_urlsafe(32)
        if await ask(prompt, salt):
            raise SaltIgnoredError(
                f"{name}: reports cached tokens of a prompt that nobody has sent, under a salt that nobody has used: it does not keep "
                "tenants apart. Put `vllm serve` there, which takes `cache_salt`"
            )
        for _ in range(_REPEATS):
            if await ask(prompt, salt):
                break
        else:
            continue  # no whole block, or no counts
        for _ in range(_OTHER_SALTS):
            if await ask(prompt, secrets.token_urlsafe(32)):
                raise SaltIgnoredError(
                    f"{name}: reports cached tokens of a prompt to another salt than the one it was sent with: it does not keep tenants "
                    "apart. Put `vllm serve` there, which takes `cache_salt`"
                )
        return
    raise SaltIgnoredError(
        f"{name}: reports no cached tokens of a prompt that it got before, so nobody can tell whether it keeps tenants apart. "
        "Start `vllm serve` with --enable-prefix-caching and --enable-prompt-tokens-details"
    )


def cached_tokens_of(reply: dict[str, object], name: str) -> int:
    """The cached tokens that a whole answer reports. Raises SaltIgnoredError if the answer has no token counts at all."""
    usage = reply.get("usage")
    if not isinstance(usage, dict):
        raise SaltIgnoredError(
            f"{name}: reports no token counts, so nobody can tell whether it keeps tenants apart. Put a server there that does, "
            "like `vllm serve` with --enable-prompt-tokens-details"
        )
    details: object = usage.get("prompt_tokens_details")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    found: object = details.get("cached_tokens") if isinstance(details, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return found if isinstance(found, int) else 0


def as_token_ids(prompt: Sequence[int]) -> list[int]:
    """Ids that every vocabulary has."""
    return [10 + number for number in prompt]


def as_text(prompt: Sequence[int]) -> str:
    """A word for each number: no tokenizer makes fewer tokens of it."""
    return " ".join(chr(97 + number % 26) + chr(97 + number // 26) for number in prompt)


class SaltProof:
    """What is known of one server, and for how long.

    Args:
        prove: asks the server, as :func:`prove_apart` does.
        clock: seconds.
    """

    def __init__(self, prove: Callable[[], Awaitable[None]], clock: Callable[[], float]) -> None:
        self._prove = prove
        self._clock = clock
        self._era = 0
        self._proving: asyncio.Task[None] | None = None
        self._refused = ("", 0.0)
        self.holds = False

    def forget(self) -> None:
        """Drop the proof: the server was lost, or is another process now."""
        self._era += 1
        self.holds = False
        self._refused = ("", 0.0)

    async def hold(self) -> None:
        """Returns when the server is known to keep salts apart; callers at the same time wait for the same answer.

        Raises:
            SaltIgnoredError: the server does not; the next try is some seconds later.
            EngineUnavailableError: the server is away.
        """
        while not self.holds:
            why, until = self._refused
            if why and self._clock() < until:
                raise SaltIgnoredError(why)
            if self._proving is None:
                self._proving = asyncio.create_task(self._ask(), name="salts")
                self._proving.add_done_callback(_take_exception)
            await asyncio.shield(self._proving)

    async def close(self) -> None:
        await end_tasks(self._proving)

    async def _ask(self) -> None:
        era = self._era
        try:
            await self._prove()
            self.holds = era == self._era
        except SaltIgnoredError as error:
            if era == self._era:
                self._refused = (str(error), self._clock() + _REFUSED_FOR_S)
            raise
        finally:
            self._proving = None


def _take_exception(task: asyncio.Task[None]) -> None:
    """Take the exception of a probe that nobody waits for any more, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
