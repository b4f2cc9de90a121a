"""Stands in for vLLM in a container: the tests' replica, where deploy/compose.yaml expects an engine."""

from __future__ import annotations

import asyncio
import json
import socket
import tomllib
from pathlib import Path

from backend.replica import Replica

PROFILE = Path("/etc/foretype/team.toml")


class Engine(Replica):
    def _bound(self, port: int) -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(("0.0.0.0", 8000))  # of a container, on a network that nobody else is in
        return made


def main() -> None:
    tokenizer = Path(tomllib.loads(PROFILE.read_text("utf-8"))["model"]["tokenizer"])
    made = json.loads(tokenizer.read_text("utf-8"))
    words = len(made["model"]["vocab"]) + len(made.get("added_tokens", ()))
    asyncio.run(serve(tokenizer.parent.name, words))


async def serve(model: str, words: int) -> None:
    async with Engine(model=model, context=2048, block=32, vocabulary=words):
        await asyncio.Event().wait()


if __name__ == "__main__":
    main()
