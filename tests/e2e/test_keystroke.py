"""The ways of a keystroke and of a cancel stand in docs/architecture.md as lists of functions: this follows real ones."""

import os
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


def listed(heading: str) -> list[str]:
    """The functions of a section of the page, in its order."""
    section = PAGE.read_text(encoding="utf-8").split(f"## {heading}, function by function\n")[1].split("\n## ")[0]
    steps = STEP.findall(section)
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


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """Where each process that is started from here on writes what it called."""
    hook, folder = tmp_path / "hook", tmp_path / "calls"
    hook.mkdir()
    folder.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK.format(here=str(HERE), folder=str(folder)), encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(hook), prepend=os.pathsep)
    return folder


def assert_the_way_is(steps: list[str], calls: list[str]) -> None:
    assert [step for step in steps if step not in calls] == [], "listed, and not called"
    assert first_missing(steps, calls) is None, "listed in another order than it is called"
    assert len(set(steps)) == len(steps)


async def test_a_keystroke_goes_the_way_that_the_page_lists(tmp_path, calls):
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
    steps = listed("One keystroke")
    assert len(steps) > 40
    assert_the_way_is(steps, called(calls, steps[0], since_ns, until_ns))


@pytest.mark.slow
async def test_a_cancel_goes_the_way_that_the_page_lists(tmp_path, calls):
    # Without a debounce the request of the new text would leave at once, and name the one that it replaces.
    with gateway(tmp_path, decode_s=1.0) as served:
        async with editor(tmp_path, "--gateway", served.url, options={"debounceMs": 1_000}) as it:
            it.open(SOURCE)
            it.insert(1, 9, "\n    qzx")
            given_up = it.ask(2, 7)
            await it.until_requests(1)
            since_ns = time.monotonic_ns()
            it.insert(1, 0, "    y = 2\n")  # nothing has come yet that typing on could contradict
            item = await it.suggestion(3, 7)
            until_ns = time.monotonic_ns()
            assert item is not None and not await given_up
    steps = listed("One cancel")
    assert_the_way_is(steps, called(calls, steps[0], since_ns, until_ns))


def test_the_read_that_waits_for_the_keystroke_is_part_of_its_way(tmp_path):
    (tmp_path / "1").write_text("1 read\n2 other\n3 read\n5 read\n9 late\n", encoding="utf-8")
    (tmp_path / "2").write_text("6 receive\n", encoding="utf-8")
    assert called(tmp_path, "read", 4, 8) == ["read", "read", "receive"]
    assert called(tmp_path, "none", 4, 8) == ["read", "receive"]


def test_a_step_out_of_order_is_found():
    assert first_missing(["a", "b"], ["x", "a", "a", "b"]) is None
    assert first_missing(["a", "b", "c"], ["b", "a", "c"]) == "b"
