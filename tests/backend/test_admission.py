"""The scheduler: what starts, waits and is refused, and that no sequence of events leaks a slot."""

import copy
import itertools
import os
import random

import pytest
from backend.admission_world import Result, Simulation, Source, typing_tenant
from foretype_backend.admission.outcomes import SHED, Decision, Reason, reason_of
from foretype_backend.admission.pressure import LOWEST_FIRST, Pressure, Rates, RollingP99
from foretype_backend.admission.scheduler import (
    PRIORITY,
    Effect,
    Refuse,
    Scheduler,
    SlotLimits,
    Start,
    Stop,
    Ticket,
)
from foretype_backend.admission.tenant_shares import Shares
from foretype_wire.messages import RequestClass
from hypothesis import example, given
from hypothesis import strategies as st

ONE = SlotLimits(max_running=1, max_waiting=2)
MANY = SlotLimits(max_running=1, max_waiting=10)
WAITED = Decision.STARTED_AFTER_WAIT


def ticket(
    key: str, session: str = "s", class_: RequestClass = RequestClass.BLOCK, deadline: float = 100.0, **fields: object
) -> Ticket:
    return Ticket(key=key, session=session, class_=class_, deadline=deadline, **fields)  # type: ignore[arg-type]


def arrivals(scheduler: Scheduler, *tickets: Ticket) -> list[Effect]:
    return [effect for each in tickets for effect in scheduler.arrive(each, 0.0)]


def test_a_request_starts_at_once_when_there_is_room() -> None:
    scheduler = Scheduler()
    assert scheduler.arrive(ticket("a"), 0.0) == [Start("a")]
    with pytest.raises(ValueError, match="live already"):
        scheduler.arrive(ticket("a"), 0.0)


def test_supersede_stops_the_named_request_and_no_other() -> None:
    scheduler = Scheduler()
    arrivals(scheduler, ticket("a"), ticket("b"))
    assert scheduler.supersede("a", "s", 0.0) == [Stop("a", Decision.SUPERSEDED)]
    assert scheduler.supersede("b", "t", 0.0) == [], "it reached another session"


def test_a_third_interactive_request_for_a_document_ends_the_oldest() -> None:
    of = {"document": "d", "class_": RequestClass.INTERACTIVE}
    effects = arrivals(Scheduler(), *(ticket(key, **of) for key in "abc"))  # type: ignore[arg-type]
    assert effects == [Start("a"), Start("b"), Stop("a", Decision.DOCUMENT_LIMIT), Start("c")]


def test_other_documents_and_classes_do_not_count_as_the_same_document() -> None:
    tickets = [
        ticket("a", document="d", class_=RequestClass.INTERACTIVE),
        ticket("b", document="e", class_=RequestClass.INTERACTIVE),
        ticket("c", document="d", class_=RequestClass.SPECULATIVE),
        ticket("e", document="d", class_=RequestClass.INTERACTIVE),
    ]
    assert arrivals(Scheduler(), *tickets) == [Start(key) for key in "abce"]


def test_what_is_no_interactive_request_ends_none_of_its_document() -> None:
    interactive = {"document": "d", "class_": RequestClass.INTERACTIVE}
    tickets = [ticket(key, **interactive) for key in "ab"]  # type: ignore[arg-type]
    effects = arrivals(Scheduler(), *tickets, ticket("c", document="d", class_=RequestClass.SPECULATIVE))
    assert effects == [Start(key) for key in "abc"]


def test_a_stopping_request_is_no_longer_live_in_its_document() -> None:
    of = {"document": "d", "class_": RequestClass.INTERACTIVE}
    scheduler = Scheduler()
    arrivals(scheduler, *(ticket(key, **of) for key in "ab"))  # type: ignore[arg-type]
    scheduler.cancel("a", 0.0)
    assert scheduler.arrive(ticket("c", **of), 0.0) == [Start("c")]  # type: ignore[arg-type]


def test_a_higher_class_waits_less() -> None:
    scheduler = Scheduler(ONE)
    arrivals(
        scheduler,
        ticket("running"),
        ticket("warm", class_=RequestClass.WARM),
        ticket("typing", class_=RequestClass.INTERACTIVE),
    )
    assert scheduler.leave("running", 0.0) == [Start("typing", WAITED)]


def test_within_a_session_the_newest_goes_first_and_sessions_take_turns() -> None:
    scheduler = Scheduler(MANY)
    arrivals(scheduler, ticket("x"), ticket("old"), ticket("other", "t"), ticket("new"))
    order = [scheduler.leave(key, 0.0)[0].key for key in ("x", "new", "other")]
    assert order == ["new", "other", "old"]


def test_tenants_share_by_tokens_and_weight() -> None:
    scheduler = Scheduler(SlotLimits(max_running=1, max_waiting=1000))
    for number in range(90):
        for tenant, weight, cost in (("small", 1.0, 1000), ("large", 1.0, 4000), ("heavy", 2.0, 1000)):
            fields = {"tenant": tenant, "weight": weight, "cost_tokens": cost}
            scheduler.arrive(ticket(f"{tenant}{number}", f"{tenant}{number}", **fields), 0.0)  # type: ignore[arg-type]
    tokens = dict.fromkeys(("small", "large", "heavy"), 0)
    running = "small0"
    for _ in range(80):
        (started,) = scheduler.leave(running, 0.0)
        running = started.key
        tenant = running.rstrip("0123456789")
        tokens[tenant] += 4000 if tenant == "large" else 1000
    assert tokens["large"] == pytest.approx(tokens["small"], rel=0.25)
    assert tokens["heavy"] == pytest.approx(2 * tokens["small"], rel=0.25)


def test_reserved_slots_are_never_taken_by_lower_classes() -> None:
    scheduler = Scheduler(SlotLimits(max_running=3, reserved={RequestClass.INTERACTIVE: 2}))
    effects = arrivals(scheduler, *(ticket(f"w{n}", class_=RequestClass.WARM) for n in range(3)))
    assert effects == [Start("w0")]
    effects = arrivals(scheduler, *(ticket(f"i{n}", class_=RequestClass.INTERACTIVE) for n in range(3)))
    assert [effect.key for effect in effects] == ["i0", "i1"]
    assert scheduler.leave("w0", 0.0) == [Start("i2", WAITED)]
    assert scheduler.leave("i0", 0.0) == [Start("w2", WAITED)]


def test_a_waiting_request_expires() -> None:
    scheduler = Scheduler(ONE)
    arrivals(scheduler, ticket("a"), ticket("b", deadline=5.0))
    assert scheduler.tick(6.0) == [Refuse("b", Decision.EXPIRED_WAITING)]
    assert scheduler.statistics().waiting == 0
    assert scheduler.arrive(ticket("c", deadline=5.0), 6.0) == [Refuse("c", Decision.EXPIRED_ON_ARRIVAL)]


def test_an_expired_request_does_not_take_a_free_slot() -> None:
    scheduler = Scheduler(MANY)
    arrivals(scheduler, ticket("a"), ticket("b", deadline=5.0), ticket("c", "t"))
    assert scheduler.leave("a", 6.0) == [Refuse("b", Decision.EXPIRED_WAITING), Start("c", WAITED)]


def test_what_cannot_make_its_deadline_by_the_measured_rates_is_refused_on_arrival() -> None:
    scheduler = Scheduler(MANY)
    arrivals(scheduler, ticket("a"))
    scheduler.first_token("a", 0.0, uncached_tokens=100, prefill_s=1.0, ttft_s=1.0)
    effects = scheduler.arrive(ticket("b", deadline=3.0, uncached_tokens=400), 0.0)
    assert effects == [Refuse("b", Decision.EXPIRED_ON_ARRIVAL)]


def test_who_waits_in_ones_own_class_or_a_higher_one_counts_into_the_predicted_wait() -> None:
    """A slot comes free every second, and nobody may begin later than in two and a half."""
    scheduler = Scheduler(MANY)
    scheduler.rates.served(1.0)
    chat, warm = RequestClass.CHAT, RequestClass.WARM
    arrivals(scheduler, ticket("running"), ticket("low", class_=warm), ticket("lower", class_=warm))
    assert arrivals(scheduler, ticket("a", deadline=2.5), ticket("b", deadline=2.5)) == [], "lower ones stand behind"
    third = ticket("c", deadline=2.5)
    assert arrivals(scheduler, third, ticket("d", class_=chat, deadline=2.5)) == [
        Refuse("c", Decision.EXPIRED_ON_ARRIVAL),
        Refuse("d", Decision.EXPIRED_ON_ARRIVAL),
    ]
    assert arrivals(scheduler, ticket("e", class_=RequestClass.INTERACTIVE, deadline=2.5)) == []


def test_a_full_queue_sheds_the_lowest_class_first() -> None:
    scheduler = Scheduler(ONE)
    arrivals(scheduler, ticket("a"), ticket("warm", class_=RequestClass.WARM), ticket("b"))
    effects = scheduler.arrive(ticket("c", class_=RequestClass.INTERACTIVE), 0.0)
    assert effects == [Refuse("warm", Decision.DISPLACED)]
    assert scheduler.arrive(ticket("d", class_=RequestClass.WARM), 0.0) == [Refuse("d", Decision.QUEUE_FULL)]


def test_of_a_full_queue_the_tenant_with_most_in_it_gives_one_up() -> None:
    scheduler = Scheduler(SlotLimits(max_running=1, max_waiting=3))
    arrivals(scheduler, *(ticket(f"f{n}", f"f{n}", tenant="flood") for n in range(4)))
    assert scheduler.arrive(ticket("f4", "f4", tenant="flood"), 0.0) == [Refuse("f4", Decision.QUEUE_FULL)]
    assert scheduler.arrive(ticket("q", "q", tenant="quiet"), 0.0) == [Refuse("f3", Decision.DISPLACED)]


def test_of_a_full_queue_in_which_all_have_as_much_the_one_that_comes_is_refused() -> None:
    scheduler = Scheduler(SlotLimits(max_running=1, max_waiting=3))
    arrivals(scheduler, *(ticket(f"{name}{n}", f"{name}{n}", tenant=name) for name in ("a", "b") for n in range(2)))
    assert scheduler.arrive(ticket("a2", "a2", tenant="a"), 0.0) == [Refuse("a2", Decision.QUEUE_FULL)]
    assert scheduler.arrive(ticket("c", "c", tenant="c"), 0.0) == [Refuse("b1", Decision.DISPLACED)]


def test_the_last_free_slot_is_kept_for_whom_it_is_reserved() -> None:
    scheduler = Scheduler(SlotLimits(max_running=2, reserved={RequestClass.INTERACTIVE: 2}))
    assert arrivals(scheduler, ticket("i", class_=RequestClass.INTERACTIVE), ticket("w", class_=RequestClass.WARM)) == [
        Start("i")
    ]
    assert arrivals(scheduler, ticket("j", class_=RequestClass.INTERACTIVE)) == [Start("j", WAITED)]


def test_a_prompt_that_was_cached_whole_says_nothing_of_how_fast_prompts_are_computed() -> None:
    rates = Rates()
    for tokens, seconds in ((0, 1.0), (10, 0.0)):
        rates.prefilled(tokens, seconds)
    assert (rates.prefill_tokens_per_s, rates.prefill_s(100)) == (None, 0.0)
    rates.prefilled(50, 0.5)
    assert rates.prefill_s(200) == 2.0


def test_a_stopped_request_keeps_its_slot_until_it_has_left() -> None:
    scheduler = Scheduler(ONE)
    arrivals(scheduler, ticket("a"), ticket("b"))
    assert scheduler.cancel("a", 0.0) == [Stop("a", Decision.CANCELLED)]
    assert scheduler.cancel("a", 0.0) == scheduler.cancel("unknown", 0.0) == []
    assert scheduler.statistics().stopping == 1
    assert scheduler.leave("a", 0.0) == [Start("b", WAITED)]
    assert scheduler.leave("a", 0.0) == []


def pressed(*, class_: RequestClass = RequestClass.INTERACTIVE) -> Pressure:
    """Objectives of a tenth of a second for two classes, of which one takes longer."""
    pressure = Pressure({RequestClass.INTERACTIVE: 0.1, RequestClass.CHAT: 0.1})
    for _ in range(100):
        pressure.first_token(class_, 0.2)
    pressure.busy()
    return pressure


def test_pressure_sheds_one_class_at_a_time_lowest_first_and_interactive_never() -> None:
    pressure = pressed()
    seen: list[RequestClass] = []
    for turn in range(8):
        pressure.busy()
        for _ in range(100):
            pressure.first_token(RequestClass.INTERACTIVE, 0.2)
        assert pressure.turn(float(turn)) == (turn < 6)
        seen += [class_ for class_ in LOWEST_FIRST if pressure.spare_steps(class_) and class_ not in seen]
    assert seen == [class_ for class_ in LOWEST_FIRST if class_ is not RequestClass.INTERACTIVE]
    assert seen[-2:] == [RequestClass.BLOCK, RequestClass.NEXT_EDIT]
    assert not pressure.queues_interactive()


def test_a_class_in_trouble_never_sheds_a_higher_one() -> None:
    pressure = pressed(class_=RequestClass.CHAT)
    for turn in range(8):
        pressure.busy()
        for _ in range(100):
            pressure.first_token(RequestClass.CHAT, 0.2)
        pressure.turn(float(turn))
    assert pressure.spare_steps(RequestClass.CHAT)
    assert not pressure.spare_steps(RequestClass.BLOCK)


def test_between_the_shares_pressure_holds_and_below_both_it_falls_step_by_step() -> None:
    pressure = pressed()
    pressure.turn(0.0)
    levels = [pressure.level]
    for turn in range(1, 5):
        for _ in range(2000):
            pressure.first_token(RequestClass.INTERACTIVE, 0.07)
        pressure.busy()
        pressure.turn(turn * 0.5)
    held = pressure.level
    for turn in range(5, 20):
        for _ in range(100):
            pressure.first_token(RequestClass.INTERACTIVE, 0.01)
        pressure.busy()
        pressure.turn(turn * 0.5)
        levels.append(pressure.level)
    assert held >= 1
    assert levels[-1] == 0
    assert all(before - after <= 1 for before, after in itertools.pairwise(levels[1:]))


def test_a_slow_engine_without_load_sheds_nothing() -> None:
    pressure = Pressure({RequestClass.INTERACTIVE: 0.1})
    for turn in range(5):
        for _ in range(100):
            pressure.first_token(RequestClass.INTERACTIVE, 3.0)
        assert not pressure.turn(float(turn))


@given(st.lists(st.floats(0.001, 10), min_size=20, max_size=200))
@example([0.001] * 20)
def test_the_rolling_p99_is_within_ten_percent(values: list[float]) -> None:
    window = RollingP99()
    for value in values:
        window.add(value)
    right = sorted(values)[max(0, len(values) - 1 - int(len(values) * 0.01))]
    found = window.p99_s()
    assert found is not None
    assert right / 1.11 <= found <= right * 1.11


def test_of_few_first_tokens_the_slowest_is_told_and_nothing_is_shed_for_it() -> None:
    pressure = Pressure({RequestClass.INTERACTIVE: 0.1})
    assert pressure.recent_ms() == {}
    for value in (0.02, 9.0, 0.03):
        pressure.first_token(RequestClass.INTERACTIVE, value)
    pressure.busy()
    assert pressure.recent_ms()["interactive"] == pytest.approx(9_000, rel=0.11)
    assert pressure.statistics().p99_ms == {} and not pressure.turn(0.0)


def test_every_refusal_has_a_reason_and_every_class_a_rank() -> None:
    assert reason_of(Decision.CLASS_SHED) is Reason.OVERLOADED
    assert reason_of(Decision.RATE_LIMITED) is Reason.RATE_LIMITED
    assert [PRIORITY[class_] for class_ in RequestClass] == [0, 1, 2, 3, 4, 5]


def storm(events: int, seed: int) -> Scheduler:
    """Random arrivals, cancels, first tokens, leaves, disconnects and ticks; checks every effect; ends with nobody left."""
    chance = random.Random(seed)
    pressure = Pressure(dict.fromkeys(RequestClass, 0.05))
    limits = SlotLimits(max_running=8, max_waiting=24, reserved={RequestClass.INTERACTIVE: 2, RequestClass.CHAT: 1})
    scheduler = Scheduler(limits, pressure)
    classes, now, number = list(RequestClass), 0.0, 0
    waiting: dict[str, None] = {}
    running: dict[str, None] = {}
    stopping: set[str] = set()

    def check(effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Start):
                waiting.pop(effect.key)
                running[effect.key] = None
            elif isinstance(effect, Refuse):
                waiting.pop(effect.key)
            else:
                assert effect.key in running
                assert effect.key not in stopping
                stopping.add(effect.key)

    def some(keys: dict[str, None]) -> str:
        return chance.choice(list(keys)) if keys else "nobody"

    for event in range(events):
        now += chance.random() * 0.004
        kind = chance.random()
        if kind < 0.45:
            number += 1
            session = str(chance.randrange(12))
            arriving = Ticket(
                key=str(number),
                session=session,
                document=chance.choice(("", "d", "e")),
                class_=chance.choice(classes),
                deadline=now + chance.random(),
                tenant=str(chance.randrange(4)),
                weight=chance.choice((0.5, 1.0, 3.0)),
                free=chance.random() < 0.3,
                uncached_tokens=chance.randrange(3000),
                cost_tokens=1 + chance.randrange(6000),
                objective_s=chance.choice((None, 0.1)),
                arrived=now,
            )
            check(scheduler.supersede(chance.choice(("", some(running), some(waiting))), session, now))
            waiting[arriving.key] = None
            check(scheduler.arrive(arriving, now))
        elif kind < 0.75:
            key = some(running)
            running.pop(key, None)
            stopping.discard(key)
            check(scheduler.leave(key, now))
        elif kind < 0.85:
            check(scheduler.cancel(some(running if chance.random() < 0.5 else waiting), now))
        elif kind < 0.95:
            rates = {"uncached_tokens": chance.randrange(3000), "prefill_s": 0.01, "ttft_s": chance.random() * 0.1}
            scheduler.first_token(some(running), now, **rates)  # type: ignore[arg-type]
        elif kind < 0.97:
            check(scheduler.disconnect(str(chance.randrange(12)), now))
        else:
            check(scheduler.tick(now))
        if event % 64 == 0:
            assert scheduler.statistics() == (len(running), len(stopping), len(waiting))
            assert len(running) <= limits.max_running
            assert len(waiting) <= limits.max_waiting
    for key in list(running):
        running.pop(key)
        check(scheduler.leave(key, now))
    while waiting or running:
        key = some(running) if running else some(waiting)
        running.pop(key, None)
        waiting.pop(key, None)
        check(scheduler.leave(key, now))
    return scheduler


@pytest.mark.timeout(1800)
def test_random_events_leak_no_slot_and_decide_every_request_once() -> None:
    scheduler = storm(int(os.environ.get("FORETYPE_SOAK_EVENTS", "100000")), seed=8)
    left = vars(scheduler)
    assert scheduler.statistics() == (0, 0, 0)
    assert scheduler.queued_tokens == 0
    assert not left["_of_session"] and not left["_of_document"]
    scheduler.shares.turn(float("inf"))
    assert not len(scheduler.shares), "who holds nothing and asks nothing is forgotten"
    assert set(left["_running_of"].values()) == {0}
    assert all(not len(queue) and not queue.tenants for queue in left["_queues"].values())


@pytest.mark.slow
@pytest.mark.parametrize("share", [20])
def test_a_tenant_at_twenty_times_its_share_moves_anothers_p99_by_less_than_a_tenth(share: int) -> None:
    alone = Simulation(slots=32, service_s=0.16).run([typing_tenant("quiet", rate=10.0)], seconds=120)
    capacity = 32 / 0.16
    flood = typing_tenant("flood", rate=capacity / 2 * share)
    beside = Simulation(slots=32, service_s=0.16).run([typing_tenant("quiet", rate=10.0), flood], seconds=120)
    assert not beside.refused["quiet"]
    assert beside.refused["flood"] > 0
    assert beside.p99_s("quiet") < 1.1 * alone.p99_s("quiet")


def test_under_pressure_that_another_tenant_makes_a_modest_one_is_not_refused_and_finds_a_slot_free() -> None:
    objective = {"class_": RequestClass.INTERACTIVE, "objective_s": 0.1}

    def quiet_beside(*others: Source) -> Result:
        pressure = Pressure({RequestClass.INTERACTIVE: 0.1, RequestClass.BLOCK: 0.5})
        simulation = Simulation(slots=24, service_s=0.12, ttft_s=0.02, pressure=pressure)
        block = typing_tenant("quiet", rate=1.0, class_=RequestClass.BLOCK, objective_s=0.5)
        return simulation.run([typing_tenant("quiet", rate=20.0, **objective), block, *others], seconds=120)

    flood = typing_tenant("flood", rate=400.0, **objective)
    alone, beside = quiet_beside(), quiet_beside(flood)
    assert beside.refused["flood"] > 0 and not beside.refused["quiet"]
    assert beside.p99_s("quiet") - alone.p99_s("quiet") < 0.005
    waited = sum(ttft_s > 0.021 for ttft_s in beside.ttft_of["quiet"]) / len(beside.ttft_of["quiet"])
    assert waited < 0.005, "or chance decides what the p99 is"
    assert beside.completed_by(120.0) >= 0.84 * 24 / 0.12 * 120, "the headroom is an eighth"


def test_a_tenant_alone_has_every_slot_and_beside_another_leaves_the_last_ones() -> None:
    shares = Shares()
    shares.asked("a", 1.0, 0.0)
    assert shares.headroom("a", 24) == 0 and not shares.modest("a", 24)
    shares.asked("b", 1.0, 1.0)
    for _ in range(12):
        shares.taken("a")
        shares.started("a")
    assert shares.headroom("a", 24) == 3 and shares.headroom("b", 24) == 0
    assert not shares.modest("a", 24) and shares.modest("b", 24)
    assert shares.headroom("a", 3) == 0, "of three slots none is left free"
    shares.turn(11.5)
    assert len(shares) == 1, "b has not asked for ten seconds and holds nothing"
    assert shares.headroom("a", 24) == 0


@pytest.mark.parametrize(
    ("slots", "service_s", "mix"),
    [
        (16, 0.08, {RequestClass.INTERACTIVE: 1.2, RequestClass.SPECULATIVE: 1.0, RequestClass.WARM: 0.8}),
        (6, 0.0325, {RequestClass.INTERACTIVE: 0.75, RequestClass.BLOCK: 0.75, RequestClass.SPECULATIVE: 1.5}),
        (64, 0.3, {RequestClass.INTERACTIVE: 0.75, RequestClass.BLOCK: 0.75, RequestClass.SPECULATIVE: 1.5}),
        (24, 0.13, {RequestClass.INTERACTIVE: 0.5, RequestClass.BLOCK: 0.5, RequestClass.SPECULATIVE: 2.0}),
    ],
)
def test_at_three_times_the_capacity_goodput_holds_and_what_is_admitted_is_in_time(
    slots: int, service_s: float, mix: dict[RequestClass, float]
) -> None:
    objectives_s = {RequestClass.INTERACTIVE: 0.1, RequestClass.SPECULATIVE: 0.15}
    pressure = Pressure({class_: objectives_s.get(class_, 0.5) for class_ in RequestClass})
    simulation = Simulation(slots=slots, service_s=service_s, ttft_s=min(0.02, service_s / 6), pressure=pressure)
    capacity = slots / service_s
    load = [
        typing_tenant("t", rate=capacity * share, class_=class_, objective_s=objectives_s.get(class_, 0.5))
        for class_, share in mix.items()
    ]
    after = typing_tenant("calm", rate=capacity / 4, begin_s=60.0, objective_s=0.1)
    result = simulation.run([*load, after], seconds=60, until_s=75)
    assert result.completed_by(60.0) >= 0.9 * capacity * 60
    assert result.p99_ttft_s(RequestClass.INTERACTIVE) <= 0.1
    refused = [result.refused_share(class_) for class_ in mix]
    assert refused == sorted(refused), "highest first, least refused"
    assert refused[0] < 0.05 or mix[RequestClass.INTERACTIVE] > 1, "what fits is not shed"
    assert result.refused_after("calm", 65.0) == 0
    assert pressure.level == 0


@pytest.mark.parametrize("objectives", [True, False])
def test_a_wait_that_takes_most_of_an_objective_is_refused_where_there_are_objectives(objectives: bool) -> None:
    scheduler = Scheduler(MANY, pressure=Pressure({RequestClass.BLOCK: 1.0}) if objectives else None)
    scheduler.rates.served(10.0)
    effects = arrivals(scheduler, ticket("a"), ticket("b", objective_s=1.0))
    assert effects == [Start("a"), *([Refuse("b", Decision.PREDICTED_LATE)] if objectives else [])]


# Free customers


class Watched:
    """Holds the promise: after a paying customer was refused for the load no free one of that class, or a lower one, starts for a while."""

    def __init__(self) -> None:
        self.refused: dict[RequestClass, float] = {}
        self.paid_refused = self.free_started = self.free_refused = 0

    def see(self, ticket: Ticket, decision: Decision, now: float) -> None:
        started = decision in (Decision.STARTED, WAITED)
        if ticket.free:
            self.free_started += started
            self.free_refused += decision in SHED
        elif decision in SHED:
            self.paid_refused += 1
            self.refused[ticket.class_] = now
        if ticket.free and started:
            late = [class_ for class_, at in self.refused.items() if now - at < 2.0]
            assert all(PRIORITY[class_] > PRIORITY[ticket.class_] for class_ in late), (now, ticket, late)


def beside_paying(*sources: Source, slots: int = 16, seconds: float = 60.0) -> tuple[Result, Watched]:
    pressure = Pressure({RequestClass.INTERACTIVE: 0.1, RequestClass.BLOCK: 0.5})
    simulation = Simulation(slots=slots, service_s=0.16, ttft_s=0.02, pressure=pressure)
    watched, scheduler = Watched(), simulation.scheduler
    simulation.watch = lambda ticket, decision: watched.see(ticket, decision, simulation.now)
    result = simulation.run(list(sources), seconds=seconds)
    assert scheduler.statistics().running <= slots
    return result, watched


CAPACITY = 16 / 0.16
INTERACTIVE = {"class_": RequestClass.INTERACTIVE, "objective_s": 0.1}


def test_in_a_spike_free_customers_are_refused_and_paying_ones_are_not() -> None:
    paid = [typing_tenant(f"paid{n}", rate=0.2 * CAPACITY, **INTERACTIVE) for n in range(3)]
    free = [typing_tenant(f"free{n}", rate=0.5 * CAPACITY, free=True, **INTERACTIVE) for n in range(4)]
    result, watched = beside_paying(*paid, *free)
    asked = 0.6 * CAPACITY * 60
    assert watched.paid_refused < 0.01 * asked, "as few as without free customers, where it is 0.4 %"
    assert watched.free_refused > 4 * watched.free_started > 0, "what paying customers leave is served"
    assert min(result.ttft_of[one.tenant].__len__() for one in paid) > 0.9 * 0.2 * CAPACITY * 60


@pytest.mark.parametrize("modest", [True, False])
def test_no_free_request_starts_while_paying_ones_of_its_class_are_refused(modest: bool) -> None:
    """Paying customers ask more than there is: one of them floods, or all do."""
    rates = (0.1, 3.0) if modest else (1.0, 1.0)
    paid = [typing_tenant(f"paid{n}", rate=rate * CAPACITY, **INTERACTIVE) for n, rate in enumerate(rates)]
    block = typing_tenant("paid0", rate=0.3 * CAPACITY, class_=RequestClass.BLOCK, objective_s=0.5)
    free = [
        typing_tenant("free", rate=0.1 * CAPACITY, free=True, **INTERACTIVE),
        typing_tenant("free", rate=0.1 * CAPACITY, free=True, class_=RequestClass.BLOCK, objective_s=0.5),
    ]
    _, watched = beside_paying(*paid, block, *free)
    assert watched.paid_refused > 1000 and watched.free_refused > 1000
    assert watched.free_started < 0.02 * watched.free_refused


def test_what_a_paying_customer_is_refused_a_free_one_is_refused_too_at_the_same_moment() -> None:
    chance = random.Random(3)
    seen = 0
    for _ in range(400):
        pressure = Pressure(dict.fromkeys(RequestClass, 0.1))
        pressure.level = chance.randrange(7)
        scheduler = Scheduler(SlotLimits(max_running=8, max_waiting=8), pressure)
        scheduler.rates.served(0.2)
        for n in range(chance.randrange(24)):
            of = {"tenant": f"t{n % 3}", "free": n % 3 == 2, "weight": chance.choice((0.5, 1.0, 3.0))}
            scheduler.arrive(ticket(f"{n}", f"{n}", chance.choice(list(RequestClass)), **of), 0.0)  # type: ignore[arg-type]
        class_, objective_s = chance.choice(list(RequestClass)), chance.choice((None, 0.1))
        twin = copy.deepcopy(scheduler)
        decided = [
            one.arrive(ticket("x", "x", class_, tenant=name, free=free, objective_s=objective_s), 0.0)[-1:]
            for one, name, free in ((scheduler, "t0", False), (twin, "t2", True))
        ]
        if decided[0] and isinstance(decided[0][0], Refuse) and decided[0][0].key == "x":
            seen += 1
            assert decided[1] and isinstance(decided[1][0], Refuse), (decided, pressure.level, class_)
    assert seen > 40


def test_a_free_request_gives_up_its_place_in_the_queue_to_a_paying_one_of_its_class() -> None:
    scheduler = Scheduler(ONE)
    arrivals(
        scheduler, ticket("runs", tenant="paid"), *(ticket(f"f{n}", f"{n}", tenant="f", free=True) for n in (1, 2))
    )
    effects = arrivals(scheduler, ticket("a", "a", tenant="paid"), ticket("b", "b", tenant="paid"))
    assert effects == [Refuse("f2", Decision.DISPLACED), Refuse("f1", Decision.DISPLACED)]
    assert scheduler.arrive(ticket("f3", "f3", tenant="f", free=True), 0.0) == [Refuse("f3", Decision.QUEUE_FULL)]
    assert scheduler.leave("runs", 0.0)[0].key in "ab"


def test_a_paying_request_does_not_count_free_ones_of_its_class_as_before_it() -> None:
    scheduler = Scheduler(MANY, pressure=Pressure({RequestClass.BLOCK: 1.0}))
    scheduler.rates.served(0.05)
    arrivals(scheduler, ticket("runs"), *(ticket(f"f{n}", f"{n}", tenant="f", free=True) for n in range(4)))
    assert arrivals(scheduler, ticket("paid", tenant="p", objective_s=0.1)) == [], (
        "it waits for one slot, 50 of its 80 ms"
    )


def test_free_customers_alone_are_treated_as_any_others() -> None:
    alone, as_others = (
        beside_paying(*(typing_tenant(f"{n}", rate=0.7 * CAPACITY, free=free, **INTERACTIVE) for n in range(2)))[0]
        for free in (True, False)
    )
    assert alone.refused and (alone.refused, alone.completions) == (as_others.refused, as_others.completions)
    shares = Shares()
    shares.asked("f", 1.0, 0.0, free=True)
    shares.asked("g", 1.0, 0.0, free=True)
    assert shares.modest("f", 24) and shares.headroom("f", 24) == 0
    shares.asked("p", 1.0, 0.0)
    assert not shares.modest("f", 24) and shares.headroom("f", 24) == 3 and shares.headroom("p", 24) == 0
