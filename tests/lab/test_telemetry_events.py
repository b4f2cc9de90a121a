"""Nothing that was acknowledged is lost when the gateway is killed, on either store; the bench itself is the test."""

import os
from typing import Any

import pytest
from foretype_lab import postgres
from foretype_lab.telemetry_events.command import run_events

KILLS = int(os.environ.get("FORETYPE_SOAK_KILLS", "3"))
"""`make soak` asks for fifty."""


@pytest.mark.slow
@pytest.mark.timeout(60 + 20 * KILLS)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_nothing_acknowledged_is_lost_by_a_kill(store: str) -> None:
    if store == "postgres" and not postgres.available():
        pytest.skip("no PostgreSQL here: apt-get install postgresql")
    seed = int(os.environ.get("FORETYPE_SOAK_SEED", "1"))
    result: dict[str, Any] = run_events(store, events=0, batch=100, senders=2, kills=KILLS, seed=seed)
    assert result["lost"] == 0
    assert len(result["kills"]) == KILLS
    for one in result["kills"]:
        assert one["lost"] == 0 and 0 < one["acknowledged"] <= one["stored"] <= one["sent"]
    # The end came in the middle at least once, or this would prove nothing.
    assert any(one["acknowledged"] < 4_000 for one in result["kills"])
