"""The degradation ladder, and clients that are told of it."""

from collections.abc import Mapping

import msgspec
from backend.admission_world import Simulation, typing_tenant
from backend.world import gateway, profile
from foretype_backend.admission.degradation import FREE_TIER, RUNGS, Ladder, profile_at
from foretype_backend.admission.outcomes import SHED
from foretype_backend.admission.pressure import Pressure
from foretype_backend.identity.directory import Tier
from foretype_context.edit_models.question import EditWindow
from foretype_context.prompt.profile import Service
from foretype_lsp.status import State, StatusMachine
from foretype_wire.messages import Profile, RequestClass
from hypothesis import given, settings
from hypothesis import strategies as st


def climb(
    ladder: Ladder, seconds: float, *, level: int, begin: float, asked: Mapping[str, tuple[int, float]]
) -> list[tuple[str, Service]]:
    """Changes in the order of time. `asked` a second by each tenant: a tenth of it in each tick, and the share that is shed.

    Who is called `free…` is.
    """
    seen: list[tuple[str, Service]] = []
    owed = dict.fromkeys(asked, 0.0)
    for tick in range(int(seconds * 10)):
        for tenant, (rate, shed) in asked.items():
            for _ in range(rate // 10):
                owed[tenant] += shed
                ladder.decided(
                    tenant,
                    weight=1.0,
                    tokens=100,
                    interactive=True,
                    shed=owed[tenant] >= 1,
                    free=tenant.startswith("free"),
                )
                owed[tenant] -= owed[tenant] >= 1
        changed = ladder.turn(level=level, highest=5, now=begin + tick / 10)
        seen += [(tenant, ladder.rung(tenant)) for tenant in sorted(changed)]
    return seen


def test_it_goes_down_and_up_one_rung_at_a_time() -> None:
    ladder = Ladder()
    assert climb(ladder, 20, level=5, begin=0, asked={"a": (100, 0.9)}) == [("a", rung) for rung in RUNGS[1:]]
    assert climb(ladder, 40, level=0, begin=20, asked={"a": (100, 0.0)}) == [("a", rung) for rung in RUNGS[-2::-1]]
    assert not ladder.moving


def test_what_passes_quickly_changes_nothing() -> None:
    ladder = Ladder()
    for begin, level in ((0, 5), (1.5, 0), (3, 5)):
        assert climb(ladder, 1.5, level=level, begin=begin, asked={"a": (100, 0.0)}) == []


def test_it_stops_at_the_rung_that_the_load_asks_for() -> None:
    for level, shed, last in (
        (4, 0.0, Service.NO_RETRIEVAL),
        (5, 0.0, Service.SHORT_CONTEXT),
        (5, 0.2, Service.CACHE_ONLY),
    ):
        ladder = Ladder()
        climb(ladder, 30, level=level, begin=0, asked={"a": (100, shed)})
        assert ladder.rung("a") is last


def test_a_flood_moves_the_tenant_that_floods_and_nobody_else() -> None:
    ladder = Ladder()
    climb(ladder, 30, level=5, begin=0, asked={"flood": (400, 0.6), "quiet": (20, 0.0), "typing": (40, 0.2)})
    assert ladder.below == {"flood": Service.CACHE_ONLY}
    assert (ladder.rung("quiet"), ladder.lowest) == (Service.FULL, Service.CACHE_ONLY)
    climb(ladder, 60, level=0, begin=30, asked={"quiet": (20, 0.0)})
    assert (ladder.below, ladder.moving) == ({}, False), "a tenant that has gone comes up too, and is forgotten"


def test_where_all_ask_too_much_all_move() -> None:
    ladder = Ladder()
    climb(ladder, 30, level=5, begin=0, asked=dict.fromkeys("abc", (100, 0.3)))
    assert ladder.below == dict.fromkeys("abc", Service.CACHE_ONLY)


def test_who_asks_too_seldom_to_tell_is_judged_with_its_like() -> None:
    """Ten tenants of five requests a second, a third of them refused: none has asked twenty times."""
    ladder = Ladder()
    few = [f"t{number}" for number in range(10)]
    for tick in range(300):
        for at, tenant in enumerate(few):
            if (tick + at) % 2 == 0:
                ladder.decided(tenant, weight=1.0, tokens=100, interactive=True, shed=(tick + at) % 6 == 0)
        ladder.turn(level=5, highest=5, now=tick / 10)
    assert ladder.below == dict.fromkeys(few, Service.CACHE_ONLY)


def test_who_is_within_its_part_goes_when_half_of_its_requests_are_refused_all_the_same() -> None:
    ladder = Ladder()
    climb(ladder, 30, level=5, begin=0, asked={"flood": (400, 0.3), "quiet": (20, 0.6)})
    assert ladder.below == {"flood": Service.CACHE_ONLY, "quiet": Service.CACHE_ONLY}


def test_free_customers_go_down_before_one_that_pays_and_come_up_after_it() -> None:
    ladder = Ladder()
    down = climb(ladder, 30, level=5, begin=0, asked={"paid": (100, 0.3), "free": (10, 0.3)})
    of_paid = [("paid", rung) for rung in RUNGS[1:]]
    of_free = [(FREE_TIER, rung) for rung in RUNGS[1:]]
    assert [one for one in down if one[0] != "free"] == [*of_free[:2], of_paid[0], of_free[2], *of_paid[1:]]
    assert (ladder.rung("paid"), ladder.rung("another", free=True)) == (Service.CACHE_ONLY, Service.CACHE_ONLY)
    up = climb(ladder, 60, level=0, begin=30, asked={"paid": (100, 0.0), "free": (10, 0.0)})
    assert [rung for tenant, rung in up if tenant == "paid"] == list(RUNGS[-2::-1])
    assert up.index(("paid", Service.FULL)) < up.index((FREE_TIER, Service.NO_RETRIEVAL))
    assert (ladder.below, ladder.moving) == ({}, False)


def test_where_free_customers_are_enough_nobody_who_pays_is_served_less() -> None:
    ladder = Ladder()
    climb(ladder, 4, level=4, begin=0, asked={"paid": (100, 0.0), "free": (100, 0.0)})
    assert ladder.rung("free", free=True) is Service.NO_RETRIEVAL and ladder.rung("paid") is Service.FULL
    assert "paid" not in dict(climb(ladder, 20, level=0, begin=4, asked={"paid": (100, 0.0), "free": (50, 0.0)}))


def test_a_free_flood_moves_the_one_that_floods_alone() -> None:
    ladder = Ladder()
    climb(ladder, 30, level=5, begin=0, asked={"free": (400, 0.6), "free-too": (20, 0.0), "paid": (20, 0.0)})
    assert ladder.below == {"free": Service.CACHE_ONLY}
    assert ladder.rung("free-too", free=True) is Service.FULL


def test_the_first_free_customer_who_comes_late_is_below_those_that_pay_at_once() -> None:
    ladder = Ladder()
    climb(ladder, 30, level=5, begin=0, asked={"paid": (100, 0.0)})
    assert ladder.below == {"paid": Service.SHORT_CONTEXT}, "where nobody is free nobody waits for them"
    climb(ladder, 1, level=5, begin=30, asked={"paid": (100, 0.0), "free": (10, 0.0)})
    assert ladder.rung("free", free=True) is Service.CACHE_ONLY


STEPS = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.dictionaries(
            st.sampled_from(["a", "b", "c", "d", "free", "free2"]),
            st.tuples(st.integers(1, 40), st.floats(0, 1)),
            max_size=4,
        ),
        st.floats(0.01, 1.9),  # time is told more often than it takes to forget what was asked
    ),
    max_size=60,
)


@settings(max_examples=60)
@given(STEPS)
def test_rungs_are_taken_one_at_a_time_and_in_the_end_all_are_forgotten(
    steps: list[tuple[int, dict[str, tuple[int, float]], float]],
) -> None:
    ladder, now = Ladder(), 0.0
    moved: dict[str, tuple[float, int]] = {}
    for level, asked, passed_s in steps:
        now += passed_s
        for tenant, (count, shed) in asked.items():
            for number in range(count):
                free = tenant.startswith("free")
                ladder.decided(tenant, weight=1.0, tokens=100, interactive=True, shed=number < count * shed, free=free)
        changed = ladder.turn(level=level, highest=5, now=now)
        for tenant in changed:
            rung = RUNGS.index(ladder.rung(tenant))
            when, before = moved.get(tenant, (-9.0, 0))
            assert abs(rung - before) == 1 or tenant == FREE_TIER
            assert now - when >= (2.0 if rung > before else 5.0) or tenant == FREE_TIER
            moved[tenant] = (now, rung)
        below, tier = ladder.below, RUNGS.index(ladder.rung("anybody", free=True))
        lowest = max((RUNGS.index(below[name]) for name in "abcd" if name in below), default=0)
        looked = ladder._looked_s == now  # pyright: ignore[reportPrivateUsage]
        if (looked and any(name.startswith("free") for name in asked)) or tier:
            assert not lowest or tier >= min(lowest + 1, 3), (below, tier)
        assert {tenant: RUNGS[rung] for tenant, (_, rung) in moved.items() if rung} == ladder.below
    for _ in range(60):
        now += 1
        ladder.turn(level=0, highest=5, now=now)
    assert (ladder.below, ladder.moving) == ({}, False)


def test_beside_a_flood_on_the_real_scheduler_no_other_tenant_moves() -> None:
    """Virtual time: ten slots of 50 ms; a tenant asks a tenth of that, another twenty times as much."""
    ladder = Ladder()
    pressure = Pressure({RequestClass.INTERACTIVE: 0.1})
    world = Simulation(slots=10, service_s=0.05, ttft_s=0.01, pressure=pressure)
    world.watch = lambda ticket, decision: ladder.decided(
        ticket.tenant,
        weight=ticket.weight,
        tokens=ticket.cost_tokens,
        interactive=ticket.class_ is RequestClass.INTERACTIVE,
        shed=decision in SHED,
    )
    seen: set[str] = set()
    world.ticked = lambda now: seen.update(ladder.turn(level=pressure.level, highest=pressure.highest, now=now))
    sources = [typing_tenant(name, rate=rate, objective_s=0.1) for name, rate in (("quiet", 20.0), ("flood", 400.0))]
    world.run(sources, seconds=30.0)
    assert seen == {"flood"}
    assert ladder.rung("flood") is Service.CACHE_ONLY
    assert ladder.rung("quiet") is Service.FULL


def test_every_rung_asks_for_less() -> None:
    full = profile()
    budgets = [profile_at(full, rung).budgets for rung in RUNGS]
    assert [one.context_tokens for one in budgets] == [700, 0, 0, 0]
    assert [one.prompt_tokens for one in budgets] == [2000, 2000, 1000, 1000]
    assert profile_at(full, Service.FULL) == full
    edits = msgspec.structs.replace(full, next_edit=EditWindow(around_lines=5, edits=4, related=True))
    windows = [profile_at(edits, rung).next_edit for rung in RUNGS]
    asked = [one and (one.around_lines, one.edits, one.related) for one in windows]
    assert asked == [(5, 4, True), (5, 4, False), (2, 2, False), None]
    assert all(one is None or type(one.around_lines) is int for one in windows)


def test_a_rung_of_another_version_is_read_as_the_lowest() -> None:
    told = msgspec.to_builtins(profile()) | {"service": "own_engine"}
    assert msgspec.convert(told, Profile).service is Service.CACHE_ONLY


async def test_clients_of_a_tenant_are_told_and_show_it() -> None:
    async with gateway() as world, world.peer() as first, world.peer() as second:
        door = world.gateway.stream
        loaded, other = sorted(door.connections, key=lambda one: one.session.name)
        loaded.principal = type(loaded.principal)(tenant="flood")
        climb(world.service.ladder, 3, level=4, begin=0, asked={"flood": (400, 0.0), other.principal.tenant: (20, 0.0)})
        world.service.rungs_changed.tell({"flood"})
        told = await first.receive()
        assert isinstance(told, Profile)
        assert (told.service, told.budgets.context_tokens) == (Service.NO_RETRIEVAL, 0)
        door.update_profile(profile(strategy="next"))
        for peer, service in ((first, Service.NO_RETRIEVAL), (second, Service.FULL)):
            told = await peer.receive()
            assert isinstance(told, Profile)
            assert (told.strategy, told.service) == ("next", service)
        text = world.service.metrics.render().decode()
        assert "foretype_service_rung 1.0" in text
        assert 'foretype_service_tenants{rung="no_retrieval"} 1.0' in text
        assert "flood" not in text, "names have no bound"
    status = StatusMachine("1")
    assert status.connected("m", Service.CACHE_ONLY) is not None
    assert (status.status.state, "overloaded" in status.status.detail) == (State.DEGRADED, True)
    assert status.connected("m") is not None
    assert status.status.state is State.READY


async def test_all_clients_of_free_tenants_are_told_when_their_tier_moves() -> None:
    async with gateway() as world, world.peer() as first, world.peer() as second:
        free, paid = sorted(world.gateway.stream.connections, key=lambda one: one.session.name)
        free.principal = type(free.principal)(tenant="small", tier=Tier.FREE)
        asked = {paid.principal.tenant: (100, 0.0), "free": (100, 0.0)}
        climb(world.service.ladder, 4, level=4, begin=0, asked=asked)
        world.service.rungs_changed.tell({FREE_TIER})
        told = await first.receive()
        assert isinstance(told, Profile) and told.service is Service.NO_RETRIEVAL
        assert world.service.ladder.rung(paid.principal.tenant) is Service.FULL
        await second.ask("not told")  # the next frame would be a profile


async def test_every_request_that_starts_or_is_refused_counts_for_its_tenant_once() -> None:
    async with gateway() as world, world.peer() as peer:
        seen: list[tuple[str, bool]] = []
        world.service.ladder.decided = lambda tenant, **asked: seen.append((tenant, asked["shed"]))  # type: ignore[method-assign]
        await peer.ask("one")
        await peer.ask("two", class_=RequestClass.BLOCK)
        assert seen == [("default", False)] * 2
