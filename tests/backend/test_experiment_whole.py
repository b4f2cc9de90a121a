"""A whole experiment: developers at a real gateway, what they tell, what the gateway decides, and the verdict of the command."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from backend.experiment_world import HOUR_MS, Office, drafted, office, spec
from foretype_backend.experiments.commands import app
from foretype_backend.experiments.experiment import State
from foretype_backend.experiments.guardrails import Guardrails
from foretype_backend.experiments.variants import BudgetKnobs, Knobs
from typer.testing import CliRunner

DEVELOPERS = 12
HOURS = 12
KEYS = {"name", "variants", "n", "effect", "low", "high", "verdict", "reason", "guardrails"}
MORE = Knobs(budgets=BudgetKnobs(context_tokens=600))
LESS = Knobs(budgets=BudgetKnobs(context_tokens=200))
CHEAP = Guardrails(cost=None)
"""More context costs more on purpose."""


async def filled(place: Office) -> None:
    for number in range(DEVELOPERS):
        # Clocks that are wrong by hours, either way: whose block it is says the gateway.
        await place.developer(f"dev{number}", skew_ms=(number - 6) * HOUR_MS)


async def begun(place: Office, name: str) -> None:
    await place.store.start(name, place.clock.now_ms)
    await place.follow()
    await asyncio.gather(*(one.told() for one in place.developers))


async def day(place: Office, name: str, hours: int = HOURS) -> int:
    """Work until the experiment stops or the day is over; how many hours it ran."""
    for hour in range(hours):
        await place.hour()
        await asyncio.gather(*(one.told() for one in place.developers))
        if place.live.running == ():
            if one := [dev for dev in place.developers if dev.profile is None or dev.profile.experiment]:
                await asyncio.gather(*(dev.told() for dev in one))
            return hour + 1
    return hours


def verdict_of(name: str, identities: str, events: str) -> dict[str, Any]:
    arguments = ["verdict", name, "--json", "--store", identities, "--telemetry", events]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert set(found) >= KEYS
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_an_effect_that_exists_is_found(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue("postgres_url") if kind == "postgres" else ""
    urls = {"identities": url, "events": url} if url else {}
    async with office(tmp_path, **urls) as place:
        await filled(place)
        await drafted(place.store, "context", spec(control=LESS, treatment=MORE, guardrails=CHEAP), place.clock)
        await begun(place, "context")
        contexts = {one.profile.variant: one.profile.budgets.context_tokens for one in place.developers if one.profile}
        assert contexts == {"control": 200, "treatment": 600}
        assert await day(place, "context") == HOURS
        running = await asyncio.to_thread(
            verdict_of, "context", url or str(tmp_path / "identity.db"), url or str(tmp_path / "events.db")
        )
        assert running["state"] == "running"
        place.clock.now_ms += 14 * HOUR_MS
        await place.live.decide()
        stopped = await place.store.experiment("context")
        assert (stopped.state, stopped.by) == (State.STOPPED, "plan")
    found = await asyncio.to_thread(
        verdict_of, "context", url or str(tmp_path / "identity.db"), url or str(tmp_path / "events.db")
    )
    assert found["verdict"] == "treatment_better", found
    assert 0 < found["low"] < found["effect"] < found["high"]
    assert found["n"]["unmeasured"] < found["n"]["rows"] // 2
    assert found["n"]["users"] == DEVELOPERS and found["n"]["units"] == DEVELOPERS * HOURS // 2
    assert found["srm"]["counts"] == [DEVELOPERS * HOURS // 2] * 2
    for arm in ("control", "treatment"):
        told = found["variants"][arm]
        assert told["denominator"] == DEVELOPERS * HOURS // 2 * 20  # five keys for each of four requests
        assert told["value"] == pytest.approx(told["numerator"] / told["denominator"], abs=1e-6)
        assert told["users"] == DEVELOPERS
    assert not any(one["breached"] for one in found["guardrails"].values())
    assert min(found["guardrails"]["syntax_errors"]["n"]) > 0


async def test_a_variant_that_hurts_stops_itself_and_everybody_goes_back(tmp_path: Path) -> None:
    """Four times the context makes first tokens late: 20 ms and a fifth of one for each token, beside a limit of 150 ms."""
    async with office(tmp_path) as place:
        await filled(place)
        late = Knobs(budgets=BudgetKnobs(context_tokens=2000))
        await drafted(place.store, "slow", spec(control=LESS, treatment=late, guardrails=CHEAP), place.clock)
        await begun(place, "slow")
        hours = await day(place, "slow")
        assert hours < HOURS, "it stops itself before its plan is over"
        assert {one.profile.experiment for one in place.developers if one.profile} == {""}
        assert {one.profile.budgets.context_tokens for one in place.developers if one.profile} == {700}
        stopped = await place.store.experiment("slow")
        assert stopped.by == "guardrail" and "first_token rises by more than 1%" in stopped.reason
        assert "n = " in stopped.reason
    found = await asyncio.to_thread(verdict_of, "slow", str(tmp_path / "identity.db"), str(tmp_path / "events.db"))
    assert found["verdict"] == "stopped" and "first_token" in found["reason"]
    guard = found["guardrails"]["first_token"]
    assert guard["p99_ms"][0] < 150 < guard["p99_ms"][1] and min(guard["n"]) > 0
