"""What people ask containers, with the client that editors use."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

from asking import answer_of, connected, question
from foretype_client.session.session import Session
from foretype_wire.messages import Done

__all__ = ["Answer", "asking", "complete"]


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
