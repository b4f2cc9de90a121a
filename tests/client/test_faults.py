"""The log holds no word of anybody's text, whoever raised what."""

import asyncio
import logging

import pytest
from foretype_wire.redaction import keep_texts_out


async def test_faults_that_nobody_waits_for_are_logged_without_their_words(caplog: pytest.LogCaptureFixture) -> None:
    def receive(body: str) -> None:
        raise ValueError(body)

    loop, seen = asyncio.get_running_loop(), asyncio.Event()
    keep_texts_out(loop, logging.getLogger("foretype_client"))
    with caplog.at_level(logging.DEBUG):
        loop.call_soon(receive, "the user's text")
        loop.call_soon(seen.set)
        await seen.wait()
    assert "ValueError at" in caplog.text and "the user's text" not in caplog.text
