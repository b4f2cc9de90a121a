"""Tasks that run until somebody ends them."""

import asyncio

from foretype_wire.tasks import end_tasks


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
