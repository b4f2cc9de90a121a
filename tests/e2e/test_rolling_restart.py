"""Two gateways behind one address are replaced one after the other while people work: nobody loses what was begun, and no editor says a word."""

import asyncio
import random
import sqlite3
import time
from contextlib import suppress

import httpx
import pytest
from backend.telemetry_world import opportunity
from backend.test_stream_with_client import typing_session
from backend.world import TOKENIZER, profile
from e2e.lsp_support import GatewayProcess, editor
from e2e.way import Way
from foretype_client.session.session import Session
from foretype_context.prompt.assemble import Assembler
from foretype_wire.errors import GatewayGoneError
from foretype_wire.messages import Delta, Finish
from msgspec.structs import replace

PEOPLE = 4
SOURCE = "import os\n\n\ndef f(x):\n    return\n"


class Balancer(Way):
    """One address for several gateways: a new connection goes to the next one whose health is good, as balancers do."""

    def __init__(self, gateways):
        super().__init__(gateways[0])
        self.gateways = gateways
        self._turn = 0

    async def _goal(self):
        async with httpx.AsyncClient(verify=False, trust_env=False, timeout=300) as http:
            for _ in self.gateways:
                self._turn += 1
                port = self.gateways[self._turn % len(self.gateways)].port
                with suppress(httpx.HTTPError):
                    if (await http.get(f"http://127.0.0.1:{port}/healthz")).status_code == 200:
                        return port
        return None


class Developer:
    """A real session that asks, one completion after the other, and reports what it saw."""

    def __init__(self, number, url):
        self.number = number
        self.session = Session(url, clock=time.monotonic, rng=random.Random(number))
        self.session.acknowledged.add(self._acknowledged)
        self.acknowledged = set()
        self.done = self.silent = self.broken = 0

    def _acknowledged(self, batch):
        self.acknowledged.add(int(batch))

    async def work(self):
        await self.session.start()
        try:
            await self.session.ready(300.0)
            calls = typing_session(Assembler(TOKENIZER, profile()), 20)
            for at in range(1_000_000):
                await self._ask(replace(calls[at % len(calls)], id=f"{self.number}-{at}", max_tokens=24))
                event = opportunity(at, session=f"s{self.number}")
                self.session.feedback(str(at), [event])
                await asyncio.sleep(0.01)
        finally:
            await self.session.close()

    async def _ask(self, call):
        """Any refusal ends the test: RequestRefusedError is raised through. Between two connections there is nobody to ask."""
        if not self.session.connected:
            return
        begun = False
        try:
            async for item in self.session.complete(call):
                begun = True
                if not isinstance(item, Delta):
                    assert item.finish is not Finish.CANCELLED
                    self.done += 1
        except GatewayGoneError:
            self.broken += begun
            self.silent += not begun


async def typing(it, suggested):
    """Somebody at an editor, who asks after every line."""
    it.open(SOURCE)
    for at in range(1_000_000):
        item = await it.suggestion(4 + at, 11)
        suggested.append(item is not None)
        it.insert(0, 0, f"# {at}\n")
        await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_two_gateways_restarted_in_turn_lose_nothing_and_no_editor_says_a_word(tmp_path):
    store = tmp_path / "events.db"
    more = {"decode_s": 0.003, "options": ("--telemetry-url", str(store)), "more": "[gateway]\ndrain_s = 120\n"}
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    gateways = [await asyncio.to_thread(GatewayProcess, folder, **more) for folder in folders]
    balancer = Balancer(gateways)
    try:
        async with balancer.open(), editor(tmp_path, "--gateway", balancer.url) as it:
            people = [Developer(number, balancer.url) for number in range(PEOPLE)]
            suggested = []
            work = [asyncio.create_task(one.work()) for one in people] + [asyncio.create_task(typing(it, suggested))]

            async def all_served():
                """Everybody gets answers now, from whichever is there."""
                before, shown = [one.done for one in people], sum(suggested)
                async with asyncio.timeout(300):
                    while any(one.done < was + 5 for one, was in zip(people, before, strict=True)) or (
                        sum(suggested) < shown + 2
                    ):
                        for task in work:
                            if task.done():
                                task.result()
                        await asyncio.sleep(0.02)

            await all_served()
            for at, folder in enumerate(folders):
                leaving = gateways[at]
                await asyncio.to_thread(leaving.close)  # SIGTERM, and wait: it ends by itself, when all have moved
                assert leaving.process.returncode == 0
                await all_served()
                gateways[at] = await asyncio.to_thread(GatewayProcess, folder, port=leaving.port, **more)
            await all_served()
            for task in work:
                task.cancel()
            for result in await asyncio.gather(*work, return_exceptions=True):
                assert isinstance(result, asyncio.CancelledError), result
            assert it.client.messages == []
        moved = sum(one.session.statistics().connections - 1 for one in people)
        assert moved >= PEOPLE, "everybody was on one of the two"
        assert [one.broken for one in people] == [0] * PEOPLE, "what was begun was finished"
        assert sum(one.silent for one in people) == 0, "what was asked was answered"
        assert "ERROR" not in (tmp_path / "lsp.log").read_text()
    finally:
        for one in gateways:
            one.close()
    with sqlite3.connect(store) as database:
        kept = set(database.execute("select session, seq from events").fetchall())
    assert {(f"s{one.number}", batch) for one in people for batch in one.acknowledged} <= kept
    assert all(len(one.acknowledged) > 10 for one in people)
