"""When cycles are collected."""

import asyncio
import contextlib
import gc
import subprocess
import sys
import weakref

import pytest
from foretype_wire.garbage_collection import calm_collector, collect_when_idle


class Knot:
    def __init__(self) -> None:
        self.me = self


def test_what_was_there_is_left_alone_and_given_back() -> None:
    gc.unfreeze()  # what all tests had frozen (tests/conftest.py)
    before = (700, 10, 10)
    gc.set_threshold(*before)  # a command that ran in this process may have left its own
    with calm_collector(full=False):
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold() > before
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == before
    with calm_collector(young_objects=2_000):
        assert gc.get_threshold() == (2_000, 200, 50), (
            "pauses are shorter, and what is older is looked through as seldom"
        )


async def test_cycles_go_when_nothing_happens_and_not_before() -> None:
    looks = 0

    def activity() -> int:
        nonlocal looks
        looks += 1
        if looks <= 4:
            assert gone() is not None
        return min(looks, 4)

    with calm_collector(full=False):
        knot = Knot()
        gone = weakref.ref(knot)
        del knot
        idle = asyncio.create_task(collect_when_idle(activity, idle_s=0.005))
        while gone() is not None:
            assert not idle.done()
            await asyncio.sleep(0.005)
        idle.cancel()
        await asyncio.gather(idle, return_exceptions=True)
    assert looks == 5


async def test_where_nothing_moved_it_looks_more_seldom_until_something_does(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    counts = iter([0, 0, 0, 3, 3, 3, 4])

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with contextlib.suppress(StopIteration, RuntimeError):  # no more counts
        await collect_when_idle(lambda: next(counts), idle_s=1)
    assert slept == [1, 6, 6, 1, 6, 6, 1]


async def test_an_idle_process_is_collected_once() -> None:
    runs: list[str] = []
    gc.callbacks.append(lambda phase, info: runs.append(phase) if info["generation"] == 2 else None)
    gc.disable()  # none by itself, of what the tests before have left
    try:
        idle = asyncio.create_task(collect_when_idle(lambda: 7, idle_s=0.005))
        await asyncio.sleep(0.1)
        idle.cancel()
        await asyncio.gather(idle, return_exceptions=True)
    finally:
        gc.enable()
        gc.callbacks.pop()
    assert runs == []


@pytest.mark.parametrize("program", ["foretype_backend", "foretype_lsp", "foretype_client.commands.cli:main"])
def test_a_process_looks_for_no_garbage_among_its_modules(program: str) -> None:
    module, _, main = program.partition(":")
    starts = (
        f"import {module} as program; program.{main}()"
        if main
        else f"runpy.run_module({module!r}, run_name='__main__')"
    )
    script = (
        "import atexit, gc, runpy, sys\n"
        "whole = []\n"
        "gc.callbacks.append(lambda phase, told: whole.append(1) if phase == 'start' and told['generation'] == 2 else None)\n"
        "atexit.register(lambda: print('left alone', gc.get_freeze_count() > 10_000, len(whole), file=sys.stderr))\n"
        f"sys.argv[1:] = ['--help']\n{starts}\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "left alone True 0")
