"""What replicas of the tests spawn where others spawn `vllm serve`: its flags and its wire, from `backend.replica`; no model.

Beside vLLM's flags the profile may hold: `behaviour` (as of the replica), `start-s`, `token-s` (seconds that a token takes), and
`refuses`, which ends it with that text.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from backend.replica import Replica


class Engine(Replica):
    """On the port that it was given, and no other."""

    host = "127.0.0.1"
    token_s = 0.0

    def __init__(self, host: str, port: int, **options: object) -> None:
        self.host, self.wanted = host, port
        super().__init__(**options)  # type: ignore[arg-type]

    def _bound(self, port: int):
        import socket

        # The protocol is named, or asyncio leaves Nagle's algorithm on: an answer's first token would wait 40 ms.
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind((self.host, self.wanted))
        return made

    async def _stream(self, name: str, body: dict[str, Any]) -> AsyncIterator[str]:
        """Of the user `slow`: a token in a tenth of a second; of `until:FILE`: the first one, and the others when there is that file."""
        user = str(body.get("user"))
        async for event in super()._stream(name, body):
            await asyncio.sleep(0.1 if user == "slow" else self.token_s)
            yield event
            while user.startswith("until:") and not Path(user[6:]).exists():  # noqa: ASYNC110, ASYNC240 - another process's
                await asyncio.sleep(0.05)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("serve", nargs="?")
    parser.add_argument("--config", type=Path)
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--served-model-name")
    given = parser.parse_args()
    flags = json.loads(given.config.read_text())
    if "refuses" in flags:
        sys.exit(flags["refuses"])
    # As vLLM's engine core: a process that must not stay.
    await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(3600)")
    await asyncio.sleep(flags.get("start-s", 0.0))
    print("Loading weights took 0.50 seconds", flush=True)
    engine = Engine(
        given.host, given.port, model=given.served_model_name, block=flags.get("block-size", 16), vocabulary=200_000
    )
    engine.behaviour = flags.get("behaviour", "ok")
    engine.token_s = flags.get("token-s", 0.0)
    await engine.start()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    await engine.stop()
    sys.exit(0)


asyncio.run(main())
