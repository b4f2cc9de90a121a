"""Connections on their way to containers, and the people who make them, with the client that editors use."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path

from asking import answer_of, connected, question
from foretype_client.session.session import Session
from foretype_wire.messages import Done

__all__ = ["Answer", "Way", "asking", "complete"]


class Way:
    """A published port or a service: what comes to `address:port` goes to the next of `targets()`, connection by connection."""

    def __init__(self, address: str, port: int, targets: Callable[[], list[tuple[str, int]]]) -> None:
        self._targets, self._turn = targets, 0
        self.faults: list[str] = []
        self._loop = asyncio.new_event_loop()
        up = threading.Event()

        def run() -> None:
            server = self._loop.run_until_complete(asyncio.start_server(self._carry, address, port))
            up.set()
            self._loop.run_forever()
            server.close()

        threading.Thread(target=run, daemon=True).start()
        if not up.wait(300):
            raise OSError(f"cannot listen on {address}:{port}")

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        targets = self._targets()
        self._turn += 1
        try:
            if targets:
                far_reader, far_writer = await asyncio.open_connection(*targets[self._turn % len(targets)])
                await asyncio.gather(self._pour(reader, far_writer), self._pour(far_reader, writer))
            else:
                self.faults.append("there is nobody to send it to")
        except OSError as error:
            self.faults.append(f"{targets}: {error}")
        finally:
            writer.close()

    async def _pour(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()


class Answer:
    """What one request was told."""

    def __init__(self, text: str, done: Done) -> None:
        self.text, self.cached, self.prompt = text, done.usage.cached_tokens, done.usage.prompt_tokens
        self.finish = done.finish


def asking(url: str, key: str, folder: Path) -> AbstractAsyncContextManager[Session]:
    """A connection as editors hold it; an Ingress, whose part the rehearsal plays, ends TLS."""
    return connected(url, ready_s=300.0, token=key, token_in_clear=True, client_name="rehearsal", cache_dir=folder)


async def complete(session: Session, name: str, typed: str, document: str = "file:///w/a.py") -> Answer:
    """One suggestion. Raises what the session raises."""
    typed = f"def function_40(value):\n    return {typed}"
    return Answer(
        *await answer_of(session, question(name, typed, document=document, max_tokens=8, deadline_ms=120_000.0))
    )
