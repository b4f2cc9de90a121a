"""A real gateway on a socket, in a thread of its own, whose model of next edits rewrites windows by a function."""

import asyncio
import threading
from contextlib import contextmanager
from types import SimpleNamespace

from backend.world import gateway, profile, scripted
from foretype_backend.config.settings import ModelConfig
from foretype_context.edit_models.question import EditWindow

FORMAT = "sweep-next-edit"
"""The shipped vocabulary has its tokens."""


def window_of(prompt):
    """The window that a prompt of this format asks about, whose tokens are no text; None of a prompt of another kind."""
    current, _, _ = prompt.rpartition("\nupdated/")
    _, found, window = current.rpartition("\ncurrent/")
    return window.partition("\n")[2] if found else None


@contextmanager
def edit_model(rewrite):
    """Yields its `url` and the windows that the model was `asked` about; to everything else the model answers nothing."""
    asked: list[str] = []
    started, stop = threading.Event(), []
    found = SimpleNamespace(asked=asked, url="")

    def answer(prompt):
        window = window_of(prompt)
        if window is None:
            return ""
        asked.append(window)
        return rewrite(window)

    async def serve():
        told = profile(next_edit=EditWindow(format=FORMAT), context_limit_tokens=2048)
        own = {"sections": {"model": ModelConfig(next_edit=FORMAT)}, "with_profile": told}
        async with gateway(scripted(answer), **own) as world:
            ended = asyncio.Event()
            stop.append((asyncio.get_running_loop(), ended))
            found.url = world.ws_url
            started.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert started.wait(300), "the gateway never came up"
        yield found
    finally:
        for loop, ended in stop:
            loop.call_soon_threadsafe(ended.set)
        thread.join(300)
