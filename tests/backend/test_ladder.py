"""The degradation ladder, and clients that are told of it."""

from backend.world import gateway, profile
from foretype_backend.admission.ladder import Ladder, profile_at
from foretype_client.wire import Profile
from foretype_context.profile import Service
from foretype_lsp.status import State, StatusMachine

RUNGS = list(Service)


def climb(ladder: Ladder, seconds: float, *, level: int, shed: float, begin: float) -> list[Service]:
    """Rungs over the time, one entry per change; `shed` of a hundred requests a second."""
    seen: list[Service] = []
    for tick in range(int(seconds * 10)):
        for number in range(10):
            ladder.decided(shed=number < shed * 10)
        if ladder.turn(level=level, highest=5, now=begin + tick / 10):
            seen.append(ladder.rung)
    return seen


def test_it_goes_down_and_up_one_rung_at_a_time() -> None:
    ladder = Ladder()
    assert climb(ladder, 20, level=5, shed=0.9, begin=0) == RUNGS[1:]
    assert climb(ladder, 40, level=0, shed=0.0, begin=20) == RUNGS[-2::-1]


def test_what_passes_quickly_changes_nothing() -> None:
    ladder = Ladder()
    assert climb(ladder, 1.5, level=5, shed=0.0, begin=0) == []
    assert climb(ladder, 1.5, level=0, shed=0.0, begin=1.5) == []
    assert climb(ladder, 1.5, level=5, shed=0.0, begin=3) == []


def test_it_stops_at_the_rung_that_the_load_asks_for() -> None:
    for level, shed, last in (
        (4, 0.0, Service.NO_RETRIEVAL),
        (5, 0.0, Service.SHORT_CONTEXT),
        (5, 0.2, Service.OWN_ENGINE),
    ):
        ladder = Ladder()
        climb(ladder, 30, level=level, shed=shed, begin=0)
        assert ladder.rung is last


def test_every_rung_asks_for_less() -> None:
    full = profile()
    budgets = [profile_at(full, rung).budgets for rung in RUNGS]
    assert [one.context_tokens for one in budgets] == [700, 0, 0, 0, 0]
    assert [one.prompt_tokens for one in budgets] == [2000, 2000, 1000, 1000, 1000]
    assert profile_at(full, Service.FULL) == full


async def test_clients_are_told_and_show_it() -> None:
    async with gateway() as world, world.peer() as peer:
        world.service.on_rung(Service.NO_RETRIEVAL)
        told = await peer.receive()
        assert isinstance(told, Profile)
        assert (told.service, told.budgets.context_tokens) == (Service.NO_RETRIEVAL, 0)
        assert "foretype_service_rung 0.0" in world.service.metrics.render().decode()
    status = StatusMachine("1")
    assert status.connected("m", Service.CACHE_ONLY) is not None
    assert (status.status.state, "overloaded" in status.status.detail) == (State.DEGRADED, True)
    assert status.connected("m") is not None
    assert status.status.state is State.READY
