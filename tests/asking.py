"""A client's connection to a real gateway, as editors hold it, and a question about one line of a file."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from foretype_client.session.session import Session
from foretype_context.prompt.segments import Kind, Scope, Segment, Source
from foretype_wire.messages import Complete, Delta, Done

ABOVE = "".join(f"def function_{at}(value):\n    return value + {at}\n\n\n" for at in range(40))


@asynccontextmanager
async def connected(url: str, *, ready_s: float = 60.0, seed: int = 0, **options: Any) -> AsyncGenerator[Session]:
    """A session that is ready; `url` is the gateway's, `options` are `Session`'s."""
    stream = url.replace("http", "ws", 1) + "/v1/stream"
    session = Session(stream, clock=time.monotonic, rng=random.Random(seed), **options)
    await session.start()
    try:
        await session.ready(ready_s)
        yield session
    finally:
        await session.close()


def question(
    id: str, typed: str, *, above: str = ABOVE, document: str = "file:///w/a.py", **more: Any
) -> Complete[Segment]:
    """What stands above the line and what was typed into it."""

    def segment(kind: Kind, text: str) -> Segment:
        source = Source(document=document, path="a.py", version=1, start=0, end=len(text))
        return Segment(kind=kind, scope=Scope.FILE, source=source, text=text)

    texts = ((Kind.PATH, ""), (Kind.PREFIX, above), (Kind.SUFFIX, "\n"), (Kind.MIDDLE, typed))
    segments = [segment(kind, text) for kind, text in texts]
    return Complete(
        id=id, document=document, version=1, language="python", segments=segments, prompt_tokens=None, **more
    )


async def answer_of(session: Session, call: Complete[Segment]) -> tuple[str, Done]:
    """The whole text, and the end. Raises what the session raises."""
    text = ""
    async for event in session.complete(call):
        if isinstance(event, Delta):
            text += event.text
        else:
            return text, event
    raise AssertionError("no end")
