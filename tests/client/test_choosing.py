"""`foretype use` as a process of the language server: what it says is passed on, and its end is never silent."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from foretype_client.errors import ModelChoiceError
from foretype_client.private_gateway.choosing import use_model


def says(text: str) -> tuple[str, ...]:
    return sys.executable, "-c", f"import sys, time\n{text}"


async def use(text: str, told: list[Any] | None = None) -> Any:
    return await use_model("x", Path("state"), (told if told is not None else []).append, command=says(text))


async def test_events_come_in_order_and_the_last_is_the_answer() -> None:
    told: list[Any] = []
    lines = 'print(\'{"event": "doing", "text": "a"}\'); print("noise"); print(\'{"event": "done", "model": "m"}\')'
    assert await use(lines, told) == {"event": "done", "model": "m"}
    assert [event["event"] for event in told] == ["doing", "done"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('print(\'{"event": "failed", "text": "no room; make some"}\'); sys.exit(1)', "^no room; make some$"),
        ("import nothing_of_this_name", r"needs `pip install 'foretype\[local\]'`"),
        ('sys.exit("it broke")', r"`foretype use` failed \(it broke\); try it in a terminal"),
        ("sys.exit(3)", r"failed \(it said nothing\)"),
        ('print("x" * (1 << 21))', "said something that cannot be read"),
    ],
)
async def test_whatever_ends_it_is_one_sentence(text: str, said: str) -> None:
    with pytest.raises(ModelChoiceError, match=said):
        await use(text)


async def test_a_program_that_cannot_be_started_is_one_sentence() -> None:
    with pytest.raises(ModelChoiceError, match="cannot be started"):
        await use_model("x", Path("state"), lambda event: None, command=["/no-such-program"])


async def test_a_cancel_ends_the_process() -> None:
    begun = asyncio.Event()
    pids: list[int] = []

    def told(event: Any) -> None:
        pids.append(event["pid"])
        begun.set()

    text = 'import os; print(\'{"event": "doing", "pid": %d}\' % os.getpid(), flush=True); time.sleep(600)'
    task = asyncio.ensure_future(use_model("x", Path("state"), told, command=says(text)))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not psutil.pid_exists(pids[0])
