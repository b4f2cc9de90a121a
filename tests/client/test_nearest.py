"""Which of several gateways is used, in virtual time."""

import pytest
from foretype_client.session.connecting import gateways_in
from foretype_client.session.nearest import PROBE_S, Nearest
from hypothesis import given
from hypothesis import strategies as st

NEAR, FAR, THIRD = "wss://near.example/v1/stream", "wss://far.example/v1/stream", "wss://third.example/v1/stream"


class World:
    """Asks who is due each second; connects again as soon as a connection is lost, and moves when told to."""

    def __init__(self, **rtts_ms: float) -> None:
        self.rtts_ms: dict[str, float | None] = {NEAR: 10.0, FAR: 80.0, **rtts_ms}
        self.nearest, self.now_s = Nearest(list(self.rtts_ms)), 0.0
        self.moves: list[tuple[float, str]] = []
        self.probe(list(self.rtts_ms))
        self._go()

    @property
    def here(self) -> str:
        return self.moves[-1][1]

    def probe(self, urls: list[str]) -> None:
        for url in urls:
            rtt_ms = self.rtts_ms[url]
            if rtt_ms is None:
                self.nearest.lost(url, "silent", self.now_s)
            else:
                self.nearest.answered(url, rtt_ms, self.now_s)

    def _go(self) -> None:
        url = self.nearest.choose(self.now_s)
        if not self.moves or url != self.here:
            self.moves.append((self.now_s, url))

    def run(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.now_s += 1.0
            self.probe(self.nearest.due(self.now_s))
            if self.rtts_ms[self.here] is None:
                self.nearest.lost(self.here, "the connection ended", self.now_s)
                self._go()
            elif self.nearest.better(self.now_s) is not None:
                self._go()


@pytest.fixture
def world() -> World:
    return World()


def test_the_nearest_is_used_and_the_next_one_at_once_when_it_is_lost(world: World) -> None:
    world.run(100)
    assert world.moves == [(0.0, NEAR)]
    world.rtts_ms[NEAR] = None
    world.run(1)
    assert world.moves[1:] == [(101.0, FAR)]
    assert [(one.url, one.chosen, one.healthy, one.why) for one in world.nearest.standings()] == [
        (NEAR, False, False, "the connection ended"),
        (FAR, True, True, ""),
    ]


def test_it_goes_back_when_the_near_one_was_well_for_a_while_and_later_each_time(world: World) -> None:
    stays: list[float] = []
    for _ in range(4):
        world.rtts_ms[NEAR] = None
        world.run(20)
        back_s = world.now_s
        world.rtts_ms[NEAR] = 10.0
        while world.here != NEAR:
            world.run(1)
        stays.append(world.now_s - back_s)
    assert all(stay >= 60 for stay in stays), "well for 30 s, then nearer for 30 s"
    assert stays == sorted(stays) and stays[-1] >= 2 * stays[0]


def test_two_that_are_about_as_near_are_not_wandered_between(world: World) -> None:
    world.rtts_ms[FAR] = 12.0
    for at in range(400):
        world.rtts_ms[NEAR] = 10.0 + at % 7
        world.run(15)
    assert world.moves == [(0.0, NEAR)]


def test_a_way_that_has_become_far_is_left_and_a_moment_of_it_is_not(world: World) -> None:
    world.rtts_ms[NEAR] = 900.0
    world.run(20)
    world.rtts_ms[NEAR] = 10.0
    world.run(600)
    assert world.moves == [(0.0, NEAR)]
    world.rtts_ms[NEAR] = 900.0
    world.run(200)
    assert world.here == FAR


def test_one_that_answers_that_it_does_not_serve_is_left_though_it_is_connected(world: World) -> None:
    world.nearest.lost(NEAR, "is not ready (answers 503)", world.now_s)
    assert world.nearest.better(world.now_s) == FAR
    assert world.nearest.choose(world.now_s) == FAR


def test_where_nobody_answers_each_is_tried_in_turn() -> None:
    nearest = Nearest([NEAR, FAR, THIRD])
    tried: list[str] = []
    for second in range(7):
        url = nearest.choose(float(second))
        tried.append(url)
        nearest.lost(url, "refused", float(second))
        assert nearest.better(float(second)) is None
    assert tried == [NEAR, FAR, THIRD, NEAR, FAR, THIRD, NEAR]
    with pytest.raises(ValueError, match="no gateway"):
        Nearest([])


def test_each_is_asked_four_times_a_minute(world: World) -> None:
    asked = 0
    for _ in range(60):
        world.now_s += 1
        due = world.nearest.due(world.now_s)
        asked += len(due)
        world.probe(due)
    assert asked == 2 * 60 / PROBE_S


@given(st.lists(st.tuples(st.sampled_from([NEAR, FAR]), st.one_of(st.none(), st.floats(0, 2_000)), st.floats(1, 120))))
def test_while_one_is_well_it_is_used_and_no_move_is_without_a_reason(
    changes: list[tuple[str, float | None, float]],
) -> None:
    world = World()
    for url, rtt_ms, seconds in changes:
        world.rtts_ms[url] = rtt_ms
        world.run(seconds)
        if any(one is not None for one in world.rtts_ms.values()):
            world.run(PROBE_S + 1)
            assert world.rtts_ms[world.here] is not None
    left: dict[str, float] = {}
    for (since_s, url), (until_s, _) in zip(world.moves, world.moves[1:], strict=False):
        assert url != NEAR or since_s - left.get(url, -1e9) >= 1 or world.rtts_ms[FAR] is None
        left[url] = until_s


def test_several_urls_stand_between_spaces() -> None:
    assert gateways_in(NEAR) == (NEAR,)
    assert gateways_in(f" {NEAR}  {FAR} ") == (NEAR, FAR)
    for wrong in ("", "  ", f"{NEAR},{FAR}x y", f"{NEAR} http://x", f"{NEAR} {NEAR}"):
        with pytest.raises(ValueError, match="gateway"):
            gateways_in(wrong)
