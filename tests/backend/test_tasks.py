"""Tasks that run until somebody ends them, and work that nobody can end."""

import asyncio
import socket
import threading
from contextlib import ExitStack

import pytest
from foretype_backend.identity.store import IdentityStore
from foretype_wire.tasks import end_tasks, in_own_thread


async def test_tasks_end_whatever_they_do_with_a_cancellation() -> None:
    lost: list[str] = []

    async def loses_some() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if len(lost) == 2:
                    raise
                lost.append("a cancellation")

    async def fails() -> None:
        raise ValueError("of its own")

    async def waits() -> None:
        await asyncio.Event().wait()

    tasks = [asyncio.create_task(each()) for each in (loses_some, fails, waits)]
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await end_tasks(None, *tasks)
    assert all(task.done() for task in tasks) and len(lost) == 2


async def test_nothing_to_end() -> None:
    await end_tasks()
    await end_tasks(None)


async def test_what_a_thread_returns_or_raises_comes_to_who_waits_for_it() -> None:
    assert await in_own_thread(lambda: "done") == "done"
    with pytest.raises(ZeroDivisionError):
        await in_own_thread(lambda: 1 / 0)


def test_who_opens_a_store_that_says_nothing_ends_when_it_is_told_to() -> None:
    """It ended when the driver gave up, two minutes later."""
    with socket.create_server(("127.0.0.1", 0)) as silent, ExitStack() as closing:

        async def opens() -> threading.Timer:
            url = f"postgresql://foretype@127.0.0.1:{silent.getsockname()[1]}/x"
            opening = asyncio.create_task(IdentityStore.open(url))
            reached = closing.enter_context((await asyncio.to_thread(silent.accept))[0])
            late = threading.Timer(60, reached.shutdown, [socket.SHUT_RDWR])
            late.start()
            opening.cancel()
            await asyncio.wait([opening])
            assert opening.cancelled()
            return late

        late = asyncio.run(opens())
        assert late.is_alive()
        late.cancel()
