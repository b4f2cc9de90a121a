"""The way of one keystroke stands in docs/architecture.md as a list of functions: this follows a real one through both processes."""

import re
import time
from pathlib import Path

import pytest
from e2e.lsp_support import SOURCE, editor, gateway

pytestmark = pytest.mark.timeout(180)

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "architecture.md"
STEP = re.compile(r"^(\d+)\. `(foretype_[\w.]+)`: .+$", re.MULTILINE)

HOOK = """
import os, sys
sys.path.insert(0, {here!r})
import called_functions
called_functions.record(os.path.join({folder!r}, str(os.getpid())))
"""


def listed() -> list[str]:
    """The functions of the page, in its order."""
    steps = STEP.findall(PAGE.read_text(encoding="utf-8"))
    assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1)), "a step is missing or cannot be read"
    return [function for _, function in steps]


def called(folder: Path, waits: str, since_ns: int, until_ns: int) -> list[str]:
    """What all processes called in that time, in the order in which it happened.

    The function that waits for what is to come was called before it: its last call then is the first that counts.
    """
    calls = [line.split(" ") for path in folder.iterdir() for line in path.read_text(encoding="utf-8").splitlines()]
    timed = sorted((int(at_ns), function) for at_ns, function in calls)
    waiting = [function for at_ns, function in timed if at_ns < since_ns and function == waits]
    return [*waiting[-1:], *(function for at_ns, function in timed if since_ns <= at_ns <= until_ns)]


def first_missing(steps: list[str], calls: list[str]) -> str | None:
    """The first of `steps` that does not come after the ones before it in `calls`."""
    rest = iter(calls)
    return next((step for step in steps if step not in rest), None)


async def test_a_keystroke_goes_the_way_that_the_page_lists(tmp_path, monkeypatch):
    hook, folder = tmp_path / "hook", tmp_path / "calls"
    hook.mkdir()
    folder.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK.format(here=str(HERE), folder=str(folder)), encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(hook))
    with gateway(tmp_path) as served:
        async with editor(tmp_path, "--gateway", served.url) as it:
            it.open(SOURCE)
            await it.status()  # answered behind the opening, which is no part of the keystroke
            since_ns = time.monotonic_ns()
            it.insert(1, 9, "\n    qzx")  # a word that the local candidate knows no end of, however long it has
            item = await it.suggestion(2, 7)
            until_ns = time.monotonic_ns()
            assert item is not None and item.insert_text.startswith("qzx")
            assert (await it.status())["counts"]["requests"] == 1
    steps = listed()
    calls = called(folder, steps[0], since_ns, until_ns)
    never = [step for step in steps if step not in calls]
    assert never == [], "listed, and not called"
    assert first_missing(steps, calls) is None, "listed in another order than it is called"
    assert len(steps) > 40 and len(set(steps)) == len(steps)


def test_the_read_that_waits_for_the_keystroke_is_part_of_its_way(tmp_path):
    (tmp_path / "1").write_text("1 read\n2 other\n3 read\n5 read\n9 late\n", encoding="utf-8")
    (tmp_path / "2").write_text("6 receive\n", encoding="utf-8")
    assert called(tmp_path, "read", 4, 8) == ["read", "read", "receive"]
    assert called(tmp_path, "none", 4, 8) == ["read", "receive"]


def test_a_step_out_of_order_is_found():
    assert first_missing(["a", "b"], ["x", "a", "a", "b"]) is None
    assert first_missing(["a", "b", "c"], ["b", "a", "c"]) == "b"
