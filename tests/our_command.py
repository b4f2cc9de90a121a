"""The command `foretype` of this environment, as whoever has installed it runs it."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

FORETYPE = Path(sys.executable).with_name("foretype")


def foretype(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """What it said, and how it ended; `options` are `subprocess.run`'s."""
    command = [str(FORETYPE), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, **options)


async def said(*words: object, **options: Any) -> tuple[int, str]:
    """Exit code, and all that it said, while the test's own loop goes on."""
    done = await asyncio.to_thread(foretype, *words, stdin=subprocess.DEVNULL, **options)
    return done.returncode, done.stdout + done.stderr
