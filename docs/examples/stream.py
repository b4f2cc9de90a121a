"""Stream a completion at a place in a file: python stream.py FILE LINE COLUMN"""

import asyncio
import sys
from pathlib import Path

from foretype_client import ForetypeError, Location, open_client, open_location


async def main(file: str, line: str, column: str) -> None:
    snapshot, offset = open_location(Location(Path(file), int(line), int(column)))
    async with open_client() as client:
        async for suggestion in client.stream(snapshot, offset, max_tokens=32):
            print(repr(suggestion))  # the whole suggestion so far


try:
    asyncio.run(main(*sys.argv[1:]))
except ForetypeError as error:
    sys.exit(f"no completion: {error}")
