"""What a gateway keeps of telemetry, read from its store."""

import asyncio

from foretype_backend.telemetry.store import Store
from sqlalchemy import text


async def stored(path, kind, many=1):
    """The events of a kind, once there are so many."""
    store = await Store.open_to_read(str(path))
    try:
        async with asyncio.timeout(300):
            while True:
                async with store.reading() as connection:
                    question = text("SELECT * FROM events WHERE event = :kind ORDER BY seq")
                    rows = (await connection.execute(question, {"kind": kind})).all()
                if len(rows) >= many:
                    return rows
                await asyncio.sleep(0.2)
    finally:
        await store.close()
