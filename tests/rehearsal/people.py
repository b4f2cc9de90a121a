"""People who type, with the client that editors use: what they are told, and that nobody sees what is another tenant's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from foretype_client.session.session import Session
from foretype_wire.errors import GatewayGoneError, RequestRefusedError

from rehearsal.steps import LIMIT_S, check, told
from rehearsal.traffic import asking, complete

__all__ = ["kept_apart", "still_cached", "while_people_type"]


async def kept_apart(url: str, keys: tuple[str, str], folder: Path) -> None:
    """A completion, out of the cache the second time, and for another tenant nothing of the first one's."""
    async with asking(url, keys[0], folder) as one, asking(url, keys[1], folder) as other:
        first, again = [await complete(one, f"a{at}", "value") for at in range(2)]
        check(
            first.text != "" and first.cached == 0,
            f"the first completion: {first.text!r}, {first.cached} cached tokens",
        )
        check(again.cached > first.prompt // 2, f"asked again: {again.cached} of {again.prompt} tokens cached")
        strange = await complete(other, "b0", "value")
        check(strange.cached == 0, f"another tenant found {strange.cached} tokens of the first one's")
        own = await complete(other, "b1", "value")
        check(own.cached > 0, "another tenant has no cache of its own")


async def still_cached(url: str, key: str, folder: Path) -> None:
    async with asking(url, key, folder) as one:
        answer = await complete(one, "c0", "value")
    check(answer.cached > answer.prompt // 2, f"{answer.cached} of {answer.prompt} tokens are cached: another salt?")


class Typist:
    """Somebody who asks without a pause and counts what became of it."""

    def __init__(self, number: int, session: Session, told: asyncio.Condition) -> None:
        self.number, self.session, self._told = number, session, told
        self.answered = self.broken = 0
        self.faults: list[str] = []

    async def work(self, ended: asyncio.Event) -> None:
        at = 0
        while not ended.is_set():
            if not self.session.connected:
                await asyncio.sleep(0.02)
                continue
            at += 1
            try:
                answer = await complete(
                    self.session, f"{self.number}-{at}", f"value + {at % 7}", f"file:///w/{self.number}.py"
                )
            except GatewayGoneError:
                self.broken += 1
            except RequestRefusedError as error:
                self.faults.append(str(error))
            else:
                if answer.finish.value in ("cancelled", "refused", "expired"):
                    self.faults.append(answer.finish.value)
                self.answered += 1
                async with self._told:
                    self._told.notify_all()
            await asyncio.sleep(0.05)


async def while_people_type(
    url: str,
    key: str,
    folder: Path,
    people: int,
    least: int,
    work: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]],
) -> None:
    """Does `work` beside them, which may wait until all have been answered again. What was asked, `least` or more, must be answered."""
    ended, heard = asyncio.Event(), asyncio.Condition()
    async with asyncio.TaskGroup() as group:
        typists: list[Typist] = []

        async def one(number: int) -> None:
            async with asking(url, key, folder) as session:
                typist = Typist(number, session, heard)
                typists.append(typist)
                await typist.work(ended)

        for number in range(people):
            group.create_task(one(number))

        async def all_served() -> None:
            """Everybody gets answers now, from whichever is there."""
            async with asyncio.timeout(LIMIT_S), heard:
                await heard.wait_for(lambda: len(typists) == people)
                before = [typist.answered for typist in typists]
                await heard.wait_for(
                    lambda: all(now.answered >= was + 3 for now, was in zip(typists, before, strict=True))
                )

        try:
            await all_served()
            await work(all_served)
            await all_served()
            async with asyncio.timeout(LIMIT_S), heard:
                await heard.wait_for(lambda: sum(typist.answered for typist in typists) >= least)
        finally:
            ended.set()
    lost = sum(typist.broken for typist in typists)
    faults = [fault for typist in typists for fault in typist.faults]
    check(lost == 0 and faults == [], f"lost {lost}; refused {faults[:3]}")
    moved = sum(typist.session.statistics().connections - 1 for typist in typists)
    check(moved > 0, "nobody had to move")
    told(f"     {sum(typist.answered for typist in typists)} answers, {moved} moves, none lost")
