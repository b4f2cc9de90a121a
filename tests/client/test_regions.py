"""A session that has several gateways: when it leaves the one in use, and what becomes of its requests. Real ways are in tests/e2e."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from foretype_client.session.nearest import Nearest
from foretype_client.session.regions import Regions

NEAR, FAR = "wss://near.example/v1/stream", "wss://far.example/v1/stream"


@pytest.mark.parametrize(("serves", "least_s", "most_s"), [(True, 10.0, 60.0), (False, 0.0, 1.0)])
async def test_requests_under_way_end_whole_where_the_gateway_serves_and_is_left_for_a_nearer_one(
    serves: bool, least_s: float, most_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request on a busy machine takes longer than a second; where nobody answers, nothing is waited for."""
    monkeypatch.setattr(Nearest, "due", lambda *_: [])
    regions: Any = Regions([FAR, NEAR], None, False, clock=lambda: 100.0)
    regions._nearest.answered(FAR, 80.0, 0.0)
    assert (await regions.locate()).url == FAR
    if not serves:
        regions._nearest.lost(FAR, "is not ready", 50.0)
    monkeypatch.setattr(Nearest, "better", lambda *_: NEAR)
    graces = asyncio.Queue[float]()
    session = SimpleNamespace(connected=True, statistics=lambda: SimpleNamespace(calls=0), move=graces.put_nowait)
    watching = asyncio.create_task(regions.watch(session))
    assert least_s <= await graces.get() <= most_s
    watching.cancel()
