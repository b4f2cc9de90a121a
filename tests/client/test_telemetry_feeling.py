"""When somebody is asked how it feels, and what is told with the answer."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from foretype_client.feedback.feedback import Feedback
from foretype_client.telemetry.feeling import WEEKS, Feeling
from foretype_client.telemetry.recorder import Recorder
from foretype_wire.telemetry import Feel

WEEK_S = 7 * 86_400.0
WALL_S = 1_790_078_400.0


class World:
    def __init__(self, folder: Path) -> None:
        self.now_s, self.wall_s = 0.0, WALL_S
        self.recorder = Recorder("s1", Feedback(), clock=lambda: self.now_s, wall_ms=0, editor="Neovim")
        self.feeling = Feeling(self.recorder, folder, clock=lambda: self.now_s, wall_s=lambda: self.wall_s)


def test_it_is_time_in_a_pause_after_enough_suggestions(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.recorder.changed_s = 0.0
    world.now_s = 10.0
    for _ in range(199):
        world.recorder.shown.add(5.0)
    assert not world.feeling.is_time()
    world.recorder.shown.add(5.0)
    assert world.feeling.is_time()
    world.now_s = 3.0
    assert not world.feeling.is_time(), "somebody types"
    world.now_s = 600.0
    assert not world.feeling.is_time(), "nobody is there"


def test_one_user_is_asked_once_in_twelve_weeks_in_all_editors_together(tmp_path: Path) -> None:
    worlds = [World(tmp_path / "telemetry") for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(lambda world: world.feeling.claim(), worlds)) == [False] * 7 + [True]
    later = World(tmp_path / "telemetry")
    later.wall_s = WALL_S + WEEKS * WEEK_S - 60
    assert not later.feeling.claim()
    later.wall_s += 120
    assert later.feeling.claim() and not later.feeling.claim()


def test_where_it_cannot_be_written_down_nobody_is_asked(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert not World(tmp_path / "file" / "telemetry").feeling.claim()


def test_an_editor_that_died_while_it_asked_blocks_nobody_for_long(tmp_path: Path) -> None:
    left = tmp_path / "asked.new"
    left.touch()
    os.utime(left, (WALL_S - 2 * 86_400, WALL_S - 2 * 86_400))
    world = World(tmp_path)
    assert not world.feeling.claim() and world.feeling.claim()


def test_an_answer_is_told_with_the_times_of_this_editor(tmp_path: Path) -> None:
    world = World(tmp_path)
    for ms in range(1, 101):
        world.recorder.shown.add(float(ms))
    world.feeling.answered("mostly")
    world.feeling.answered("perhaps")
    (event,) = world.recorder.take()
    assert isinstance(event, Feel) and event.editor == "neovim"
    assert (event.answer, event.p50_ms, event.p95_ms, event.suggestions) == ("mostly", 50.0, 95.0, 100)
