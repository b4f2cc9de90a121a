"""How many replicas a pool should have: in virtual time, and whatever signals say."""

import datetime
import itertools
import math
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from foretype_backend.fleet.scaling.history import History
from foretype_backend.fleet.scaling.options import Hours, ScalingOptions
from foretype_backend.fleet.scaling.policy import Decision, ScalingState, decide
from foretype_backend.fleet.scaling.signals import Signals, merged, read_signals
from hypothesis import given, settings
from hypothesis import strategies as st

MONDAY = datetime.datetime(2026, 3, 2, tzinfo=datetime.UTC).timestamp()
HOUR, DAY, WEEK = 3_600.0, 86_400.0, 7 * 86_400.0
OPTIONS = ScalingOptions(min_replicas=1, max_replicas=8, cold_start_s=60.0, warm_max_replicas=0)


class World:
    """A pool whose replicas start in a time, asked each second unless told otherwise."""

    def __init__(
        self, options: ScalingOptions, *, target: int = 1, begin_s: float = MONDAY, start_s: float = 0.0
    ) -> None:
        self.options, self.start_s, self.now_s = options, start_s, begin_s
        self.state, self.target = ScalingState(), target
        self.starting: list[tuple[float, int]] = []
        self.serving = target
        self.seen: list[tuple[float, int]] = []
        self.last = Decision(target, "", self.state)

    def call(self, passed_s: float = 1.0, **signals: Any) -> int:
        self.now_s += passed_s
        while self.starting and self.starting[0][0] <= self.now_s:
            self.serving = max(self.serving, self.starting.pop(0)[1])
        told = Signals(replicas=self.serving, **signals) if signals else None
        self.last = decide(told, self.state, self.options, target=self.target, now_s=self.now_s)
        self.state = self.last.state
        if self.last.replicas != self.target:
            self.seen.append((self.now_s, self.last.replicas))
            if self.last.replicas > self.target:
                self.starting.append((self.now_s + self.start_s, self.last.replicas))
        self.target = self.last.replicas
        self.serving = min(self.serving, self.target)
        if not self.start_s:
            self.serving = self.target
        return self.target


def idle() -> dict[str, float]:
    return {"queued_uncached_tokens": 0.0, "running": 0.0}


def busy(running: float, tokens: float = 0.0) -> dict[str, float]:
    return {"queued_uncached_tokens": tokens, "running": running}


def test_a_burst_is_answered_in_the_call_that_sees_it_and_says_why() -> None:
    world = World(OPTIONS)
    assert world.call(**busy(2)) == 1
    assert world.call(0.1, **busy(2, tokens=13_000)) == 3
    assert world.last.reason == "13,000 uncached tokens wait"
    assert world.call(0.1, **busy(2, tokens=90_000)) == 8
    assert "max_replicas allows 8" in world.last.reason


@pytest.mark.parametrize(
    ("signals", "wanted"),
    [
        ({"running": 20.0, "queued_uncached_tokens": 0.0}, 3),
        ({"running": 4.0, "queued_uncached_tokens": 0.0, "kv_use": 0.95}, 3),  # of two: 2 * 0.95 / 0.75
        ({"running": 4.0, "queued_uncached_tokens": 0.0, "predicted_p99_ms": 140.0}, 3),
        ({"running": 4.0, "queued_uncached_tokens": 0.0, "predicted_p99_ms": 4_000.0}, 4),  # doubled, no more
        ({"running": 4.0, "queued_uncached_tokens": 0.0, "predicted_p99_ms": 80.0}, 2),
        ({"running": 16.0, "queued_uncached_tokens": 0.0, "kv_use": 0.1}, 2),
    ],
)
def test_each_signal_speaks_for_itself(signals: dict[str, float], wanted: int) -> None:
    world = World(OPTIONS, target=2)
    assert world.call(**signals) == wanted


def test_fewer_come_after_the_delay_by_a_share_at_a_time_and_not_below_what_was_wanted_meanwhile() -> None:
    world = World(OPTIONS, target=8)
    for _ in range(300):
        assert world.call(**busy(8)) == 8
        assert "would do" in world.last.reason or world.last.replicas < 8
    assert world.call(**busy(8)) == 6, "a quarter of eight"
    begin_s = world.now_s
    world.call(100.0, **busy(36))  # five are wanted for a moment
    world.call(100.0, **busy(8))
    assert world.call(100.0, **busy(8)) == 5
    assert world.now_s - begin_s == 300
    for _ in range(300):
        world.call(10.0, **busy(8))
    assert world.target == 1
    times = [at for at, _ in world.seen]
    assert all(later - sooner >= 300 for sooner, later in itertools.pairwise(times))


def test_a_load_that_comes_back_within_the_delay_moves_nothing() -> None:
    world = World(OPTIONS, target=3)
    for _ in range(20):
        world.call(150.0, **busy(2))
        world.call(1.0, **busy(24))
    assert world.seen == []


@pytest.mark.parametrize(
    "signals",
    [
        {},
        {"queued_uncached_tokens": math.nan, "running": math.nan},
        {"queued_uncached_tokens": None, "running": None, "kv_use": 0.99},
        {"queued_uncached_tokens": -1.0, "running": math.inf},
        {"queued_uncached_tokens": "many", "running": True},
    ],
)
def test_what_nobody_knows_keeps_the_number(signals: dict[str, Any]) -> None:
    world = World(OPTIONS, target=4)
    for _ in range(1_000):
        assert world.call(**signals) == 4
    assert world.last.reason == "nobody says how loaded the pool is: the number stays"


@pytest.mark.parametrize("name", ["queued_uncached_tokens", "running", "kv_use", "predicted_p99_ms"])
@pytest.mark.parametrize("value", [None, math.nan])
def test_a_signal_that_falls_silent_lets_none_go_and_others_still_bring_more(name: str, value: float | None) -> None:
    full: dict[str, Any] = {
        "queued_uncached_tokens": 0.0,
        "running": 1.0,
        "kv_use": 0.1,
        "predicted_p99_ms": 30.0,
    }
    world = World(OPTIONS, target=3)
    world.call(**full)
    for _ in range(1_000):
        assert world.call(**{**full, name: value}) == 3
    assert "not everything is known" in world.last.reason
    other = "running" if name == "queued_uncached_tokens" else "queued_uncached_tokens"
    assert world.call(**{**full, name: value, other: 50_000.0}) == 8


def test_an_engine_that_never_says_what_it_holds_is_scaled_down_all_the_same_and_an_idle_one_needs_no_p99() -> None:
    world = World(OPTIONS, target=2)
    for _ in range(302):
        world.call(**busy(1))
    assert world.target == 1
    world = World(OPTIONS, target=2)
    world.call(**busy(1), kv_use=0.2, predicted_p99_ms=30.0)
    for _ in range(302):
        world.call(**idle())
    assert world.target == 1


def test_a_pool_that_somebody_asks_now_and_then_shrinks_though_a_single_request_has_no_p99_yet() -> None:
    world = World(OPTIONS, target=2)
    world.call(**busy(8), kv_use=0.2, predicted_p99_ms=30.0)
    for at in range(400):
        world.call(0.5, **(busy(1) if at % 7 == 0 else idle()))
    assert world.target == 2  # the delay counts all the same
    for at in range(400):
        world.call(0.5, **(busy(1) if at % 7 == 0 else idle()))
    assert world.target == 1


def test_a_gateway_that_is_silent_lets_none_go() -> None:
    world = World(OPTIONS, target=2)
    for _ in range(1_000):
        assert world.call(**busy(1), complete=False) == 2
    assert world.call(**busy(80), complete=False) == 8


def test_none_goes_while_some_are_starting() -> None:
    world = World(ScalingOptions(max_replicas=8, cold_start_s=400.0, down_after_s=10.0), start_s=350.0)
    world.call(**busy(32))
    for _ in range(340):
        assert world.call(**busy(8)) == 4
    assert "some are starting" in world.last.reason
    for _ in range(30):
        world.call(**busy(8))
    assert world.target < 4


def test_the_warm_pool_is_what_came_within_one_measured_cold_start() -> None:
    options = ScalingOptions(max_replicas=20, cold_start_s=60.0, warm_max_replicas=5, down_after_s=60.0, learn=False)
    world = World(options, start_s=240.0)
    for _ in range(120):
        world.call(**busy(4))
    for second in range(960):  # a replica's worth more in each two minutes
        world.call(**busy(4 + second / 15))
    assert world.state.history.cold_start_s == pytest.approx(240.0, abs=2)
    rise = world.state.history.steepest
    assert rise == pytest.approx(2.0, abs=0.3), "240 s at a replica in 120 s"
    for _ in range(3_600):
        world.call(**busy(16))
    assert world.target == 2 + math.ceil(rise / 1.1)
    assert "2 warm for the steepest rise" in world.last.reason
    for _ in range(9 * 24 * 4):
        world.call(900.0, **busy(16))
    assert world.target == 2, "a week later there was no such rise any more"


def day_load(now_s: float) -> float:
    """Requests under way: a working day from eight to six, nothing at night and at the weekend."""
    when = datetime.datetime.fromtimestamp(now_s, datetime.UTC)
    return 40.0 if when.weekday() < 5 and 8 <= when.hour < 18 else 0.0


def test_the_morning_is_learned_from_last_week() -> None:
    options = ScalingOptions(min_replicas=1, max_replicas=8, cold_start_s=300.0, warm_max_replicas=0)
    world = World(options, start_s=300.0)
    ready: dict[tuple[int, int], int] = {}
    while world.now_s < MONDAY + 2 * WEEK:
        world.call(60.0, **busy(day_load(world.now_s + 60.0)))
        at_s = world.now_s - MONDAY
        if at_s % DAY == 8 * HOUR:
            ready[divmod(int(at_s // DAY), 7)] = world.serving
    assert [ready[0, day] for day in range(5)] == [1] * 5, "nobody knew"
    assert [ready[1, day] for day in range(5)] == [5] * 5, "40 requests of 8 each"
    assert [ready[1, day] for day in (5, 6)] == [1, 1]


def test_a_schedule_is_ready_when_its_hours_begin() -> None:
    hours = Hours(days="mon-fri", begin="08:00", end="18:00", replicas=4)
    world = World(ScalingOptions(max_replicas=8, cold_start_s=600.0, schedule=(hours,)), start_s=600.0)
    while world.now_s < MONDAY + 8 * HOUR:
        world.call(60.0, **idle())
    assert world.seen == [(MONDAY + 8 * HOUR - 600.0, 4)]
    assert world.serving == 4
    silent = decide(None, ScalingState(), world.options, target=1, now_s=MONDAY + 9 * HOUR)
    assert silent.replicas == 4, "a schedule needs nobody's signals"


def test_a_quality_pool_goes_to_nothing_at_night_and_comes_with_the_first_who_asks() -> None:
    night = Hours(begin="20:00", end="06:00", replicas=0)
    options = ScalingOptions(min_replicas=1, max_replicas=4, cold_start_s=300.0, schedule=(night,))
    world = World(options, target=2, begin_s=MONDAY + 19.9 * HOUR)
    for _ in range(40):
        world.call(60.0, **idle())
    assert world.target == 0
    assert world.call(1.0, **busy(1, tokens=900)) == 1
    while world.now_s < MONDAY + 29 * HOUR:
        world.call(60.0, **idle())
    assert world.target == 0
    while world.now_s < MONDAY + 30 * HOUR:
        world.call(60.0, **idle())
    assert world.target == 1, "ready before the night is over"


def test_a_pool_whose_least_is_nothing_learns_its_morning_too() -> None:
    options = ScalingOptions(min_replicas=0, max_replicas=8, cold_start_s=300.0)
    world = World(options, target=0, start_s=300.0)
    served: list[int] = []
    while world.now_s < MONDAY + 9 * DAY:
        world.call(60.0, **busy(day_load(world.now_s + 60.0)))
        if (world.now_s - MONDAY) % DAY in (3 * HOUR, 8 * HOUR):
            served.append(world.serving)
    assert served[:2] == [0, 0]
    assert served[-2] == 0 and served[-1] >= 5


def test_costs_bound_an_hour_and_a_day() -> None:
    hourly = ScalingOptions(max_replicas=8, price_per_hour=3.0, max_cost_per_hour=10.0)
    world = World(hourly)
    assert world.call(**busy(80)) == 3
    assert "max_cost_per_hour allows 3" in world.last.reason
    daily = ScalingOptions(min_replicas=1, max_replicas=8, price_per_hour=3.0, max_cost_per_day=100.0)
    world = World(daily)
    while world.call(60.0, **busy(80)) == 8:
        assert world.now_s < MONDAY + DAY
    assert world.now_s - MONDAY == pytest.approx(100 / 24 * HOUR, abs=120)
    assert "max_cost_per_day, which is spent" in world.last.reason
    while world.now_s < MONDAY + DAY - 61:
        assert world.call(60.0, **busy(80)) == 1
    world.call(120.0, **busy(80))
    assert world.target == 8, "a new day"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"min_replicas": 3, "max_replicas": 2}, "min_replicas 3 is above max_replicas 2"),
        ({"max_cost_per_hour": 5}, "needs price_per_hour"),
        ({"max_cost_per_hour": 5, "price_per_hour": 3, "min_replicas": 2, "max_replicas": 4}, "pays 1 replicas"),
        ({"timezone": "Mars/Phobos"}, "IANA name"),
        ({"timezone": "../../etc/passwd"}, "IANA name"),
        ({"schedule": [{"begin": "7:30", "end": "09:00", "replicas": 1}]}, "07:30"),
        ({"schedule": [{"begin": "07:30", "end": "24:01", "replicas": 1}]}, "no time of day"),
        ({"schedule": [{"days": "monday", "begin": "07:30", "end": "09:00", "replicas": 1}]}, "mon-fri"),
        ({"schedule": [{"begin": "07:30", "end": "09:00", "replicas": 9}]}, r"schedule\[0\].replicas 9"),
        ({"kv_target": 75}, r"kv_target"),
        ({"max_replica": 7}, "max_replica"),
    ],
)
def test_bad_options_name_the_setting_and_what_to_do(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=told):
        msgspec.convert(fields, ScalingOptions)


def test_hours_are_local_and_may_cross_midnight() -> None:
    hours = Hours(days="fri", begin="22:00", end="06:00", replicas=2)
    options = ScalingOptions(max_replicas=2, timezone="America/New_York", schedule=(hours,))
    zone = ZoneInfo("America/New_York")

    def floor(day: int, hour: int) -> int:
        return options.floor(datetime.datetime(2026, 3, day, hour, tzinfo=zone).timestamp())

    assert [floor(6, 21), floor(6, 22), floor(7, 5), floor(7, 6), floor(7, 22)] == [1, 2, 2, 1, 1]


def test_a_state_can_be_written_and_read_again() -> None:
    world = World(OPTIONS)
    for second in range(2_000):
        world.call(10.0, **busy(second / 30))
    text = msgspec.json.encode(world.state)
    assert msgspec.json.decode(text, type=ScalingState) == world.state
    assert len(text) < 20_000
    with pytest.raises(msgspec.ValidationError, match="672 slots"):
        msgspec.json.decode(b'{"week": [1.0], "passed": [1]}', type=History)


def test_of_several_gateways_requests_add_up_and_the_worst_counts() -> None:
    one = Signals(queued_uncached_tokens=100, running=2, kv_use=0.3, predicted_p99_ms=20, replicas=2)
    two = Signals(queued_uncached_tokens=50, running=1, kv_use=0.4, predicted_p99_ms=90, replicas=1)
    both = Signals(queued_uncached_tokens=150, running=3, kv_use=0.4, predicted_p99_ms=90, replicas=2)
    assert merged([one, two]) == both
    assert merged([one, msgspec.structs.replace(two, running=None)]) == msgspec.structs.replace(both, running=None)
    assert merged([]) is None
    assert read_signals({"fast": {"running": 2, "kv_use": 7, "more": []}}, "fast") == Signals(running=2.0)
    assert read_signals({"fast": []}, "fast") is None
    assert read_signals([], "fast") is None


# Whatever signals say

_FIGURE = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True), st.floats(0, 2e5), st.floats(0, 1))
_ANY = st.one_of(
    st.none(),
    st.builds(
        Signals,
        queued_uncached_tokens=_FIGURE,
        running=_FIGURE,
        kv_use=_FIGURE,
        predicted_p99_ms=_FIGURE,
        replicas=st.one_of(st.none(), st.integers(-1, 50)),
        complete=st.booleans(),
    ),
)


@st.composite
def _options(draw: st.DrawFn) -> ScalingOptions:
    most = draw(st.integers(1, 12))
    schedule = draw(
        st.lists(
            st.builds(
                Hours,
                days=st.sampled_from(["mon-fri", "sat,sun", "mon-sun", "fri-mon"]),
                begin=st.sampled_from(["00:00", "07:30", "20:00"]),
                end=st.sampled_from(["06:00", "18:45", "00:00"]),
                replicas=st.integers(0, most),
            ),
            max_size=2,
        )
    )
    return ScalingOptions(
        min_replicas=draw(st.integers(0, most)),
        max_replicas=most,
        down_after_s=draw(st.sampled_from([0.0, 30.0, 300.0])),
        down_share=draw(st.sampled_from([0.1, 0.25, 1.0])),
        warm_max_replicas=draw(st.integers(0, 3)),
        schedule=tuple(schedule),
    )


@settings(max_examples=150)
@given(_options(), st.lists(st.tuples(_ANY, st.floats(0.05, 50_000.0)), max_size=30), st.integers(0, 12))
def test_it_is_never_beyond_its_bounds_and_what_is_unknown_takes_none_away(
    options: ScalingOptions, steps: list[tuple[Signals | None, float]], target: int
) -> None:
    now_s, state, target = MONDAY, ScalingState(), min(max(target, options.least), options.max_replicas)
    for signals, passed_s in steps:
        now_s += passed_s
        decision = decide(signals, state, options, target=target, now_s=now_s)
        assert options.floor(now_s) <= decision.replicas <= options.max_replicas
        if signals is None or not signals.complete:
            assert decision.replicas >= target
        assert decision.reason
        state, target = decision.state, decision.replicas


@settings(max_examples=100)
@given(
    options=_options().filter(lambda one: not one.schedule),
    told=st.fixed_dictionaries(
        {"queued_uncached_tokens": st.floats(0, 40_000), "running": st.floats(0, 100)},
        optional={"kv_use": st.floats(0, 1), "predicted_p99_ms": st.floats(0, 300)},
    ),
    target=st.integers(0, 12),
    start_s=st.sampled_from([0.0, 20.0, 90.0]),
)
def test_on_a_constant_signal_it_never_turns_back(
    options: ScalingOptions, told: dict[str, float], target: int, start_s: float
) -> None:
    begin = min(max(target, options.min_replicas), options.max_replicas)
    world = World(options, target=begin, start_s=start_s)
    for _ in range(200):
        world.call(20.0, **told)
    numbers = [begin, *(replicas for _, replicas in world.seen)]
    steps = [later - sooner for sooner, later in itertools.pairwise(numbers)]
    assert all(step > 0 for step in steps) or all(step < 0 for step in steps)


@settings(max_examples=100)
@given(_options(), st.integers(0, 12), st.floats(0, 500_000), st.floats(0.05, 5.0))
def test_a_burst_is_answered_in_one_call_and_left_again_only_after_the_delay(
    options: ScalingOptions, target: int, tokens: float, passed_s: float
) -> None:
    begin = min(max(target, options.least), options.max_replicas)
    world = World(options, target=begin)
    world.call(**idle())
    before = world.target
    after = world.call(passed_s, **busy(1, tokens=tokens))
    needed = math.ceil(max(tokens / options.tokens_per_replica, 1 / options.running_per_replica) / 1.1)
    assert after >= min(needed, options.max_replicas)
    assert after >= before or options.down_after_s <= passed_s
    begin_s = world.now_s
    for _ in range(40):
        if world.call(10.0, **idle()) < after:
            assert world.now_s - begin_s >= options.down_after_s
            break


@pytest.mark.parametrize("jump_s", [0.0, 1.0, -1.0, -WEEK, 5 * WEEK])
def test_a_clock_that_jumps_breaks_nothing(jump_s: float) -> None:
    world = World(OPTIONS, target=4)
    for _ in range(100):
        world.call(**busy(8))
    assert 1 <= world.call(jump_s, **busy(8)) <= 8
    for _ in range(1_500):
        world.call(**busy(8))
    assert world.target == 1
