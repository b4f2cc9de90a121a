"""The map of `make mutants` follows the tree: that run takes hours, and nobody should learn of a module that moved only then."""

from __future__ import annotations

from dataclasses import replace

from mutants.chart import read_chart, read_survivors

CHART = read_chart()


def test_modules_and_tests_of_the_map_are_there_and_belong_together() -> None:
    assert not CHART.missing() and not CHART.unmapped()
    modules = [path for room in CHART.rooms for path in room.modules]
    assert len(modules) == len(set(modules)), "a module is in one room"
    assert len(CHART.rooms) * CHART.per_room >= 200


def test_what_is_not_there_is_named() -> None:
    room = replace(CHART.rooms[0], modules={"backend/gone.py": []}, wider=["tests/test_gone.py"])
    gone = replace(CHART, rooms=[room])
    assert gone.missing() == [
        f"[{room.name}] names {path}, which does not exist" for path in ("backend/gone.py", "tests/test_gone.py")
    ]
    assert gone.unmapped() == [f"[{room.name}] names no test for backend/gone.py"]


def test_every_survivor_is_of_a_module_of_the_map_once_and_has_a_reason() -> None:
    modules = {path for room in CHART.rooms for path in room.modules}
    known = read_survivors()
    assert not [one.module for one in known if one.module not in modules]
    assert len({one.place for one in known}) == len(known)
    assert all(len(one.reason) > 20 and one.was != one.now for one in known)
