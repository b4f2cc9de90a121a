"""The benches of served prompts, before servers without a model: what they ask, and what they count."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from backend.replica import Replica
from foretype_lab.errors import VllmError
from foretype_lab.served.apart import _Load  # pyright: ignore[reportPrivateUsage]
from foretype_lab.served.resume import _Session  # pyright: ignore[reportPrivateUsage]
from foretype_lab.served.servers import ask, client, tier

VOCABULARY = 20_000


async def test_an_answer_has_its_times_and_what_was_cached() -> None:
    replica = Replica(vocabulary=VOCABULARY, block=32)
    await replica.start()
    async with client() as http:
        cold = await ask(http, replica.url, range(300, 620), tokens=6, salt="a", kept=False)
        warm = await ask(http, replica.url, range(300, 620), tokens=6, salt="a")
        assert (cold.cached_tokens, warm.cached_tokens, len(warm.token_ids), len(warm.gaps_s)) == (0, 288, 6, 5)
        assert [body.get("kv_transfer_params") for body in replica.bodies] == [{"max_offload_tokens": 0}, None]
        session = _Session(http, replica.url, "b", random.Random(1))
        await session.turn(320)
        assert (await session.turn(40)).cached_tokens >= 288  # the same conversation, and more of it
        replica.behaviour = "error"
        with pytest.raises(VllmError, match="500"):
            await ask(http, replica.url, [300], tokens=1, salt="a")
    await replica.stop()


@pytest.mark.parametrize("way", ["both", "apart"])
async def test_apart_prompts_go_to_one_server_and_answers_come_from_the_other(way: str) -> None:
    one, two = (Replica(vocabulary=VOCABULARY, block=32) for _ in range(2))
    for replica in (one, two):
        await replica.start()
    row = await _Load(one.url, two.url, "chat", way, random.Random(2)).run(0.5, 2)
    assert row["answers"] >= 2
    assert {body["max_tokens"] for body in two.bodies} == {64}
    assert {body["max_tokens"] for body in one.bodies} == ({4} if way == "apart" else {64})
    assert (row["handed_over_tokens"] is None) == (way == "both")
    for replica in (one, two):
        await replica.stop()


def test_files_are_named_where_others_read_them() -> None:
    assert tier(1)["kv_connector_extra_config"]["secondary_tiers"] == []
    [files] = tier(1, Path("/shared"))["kv_connector_extra_config"]["secondary_tiers"]
    assert files == {"type": "fs", "root_dir": "/shared"}
