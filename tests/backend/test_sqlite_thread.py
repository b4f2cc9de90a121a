"""SQLite on the event loop: whoever is cancelled there, and however often, leaves nothing that a process would wait for."""

import asyncio
from pathlib import Path

from foretype_backend.database import open_later
from foretype_backend.telemetry.schema import SCHEMA

SLOW = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000000) SELECT count(*) FROM n"


async def test_a_question_that_is_cancelled_twice_leaves_no_task(tmp_path: Path) -> None:
    engine = open_later(str(tmp_path / "store.db"), SCHEMA)
    asked = asyncio.Event()

    async def ask() -> None:
        async with engine.connect() as connection:
            asked.set()
            await connection.exec_driver_sql(SLOW)

    task = asyncio.create_task(ask())
    await asked.wait()
    await asyncio.sleep(0.05)
    for _ in range(2):  # as `end_tasks` does while a connection takes long to close
        task.cancel()
        await asyncio.sleep(0.05)
    await asyncio.wait([task])
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left or not (await asyncio.wait(left, timeout=10))[1]
    await engine.dispose()
