"""The language server with the shipped model behind a real gateway."""

import asyncio

import pytest
from e2e.lsp_support import DEADLINE_S, editor, gateway

pytestmark = [pytest.mark.engine, pytest.mark.timeout(180), pytest.mark.slow]

SOURCE = '''import os


def read_lines(path):
    """Read all lines of a file."""
    with open(path) as file:
        return file.readlines()


def write_lines(path, lines):
    """Write lines to a file."""
    for name in '''
CURSOR = (11, len("    for name in "))
"""Nothing above says what comes here, so the model is asked, and not the local candidate."""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with gateway(tmp_path_factory.mktemp("gateway"), engine="embedded") as running:
        yield running


async def test_the_model_suggests_and_typing_through_costs_nothing(served, tmp_path):
    async with editor(tmp_path, "--gateway", served.url) as it:
        it.open(SOURCE)
        item = await it.suggestion(*CURSOR)
        typed = SOURCE.rpartition("\n")[2].lstrip()
        assert item.insert_text.startswith(typed)
        rest = item.insert_text[len(typed) :]
        assert rest.strip()
        it.insert(*CURSOR, rest[0])
        again = await it.suggestion(CURSOR[0], CURSOR[1] + 1)
        assert again.insert_text.startswith(item.insert_text), "the same answer, which may have grown meanwhile"
        status = await it.status()
        assert status["counts"]["requests"] == 1
        assert status["model"] == served.model


async def test_a_killed_engine_is_silent_and_suggestions_come_back(served, tmp_path):
    async with editor(tmp_path, "--gateway", served.url) as it:
        it.open(SOURCE)
        assert await it.suggestion(*CURSOR) is not None
        it.open(SOURCE.replace("lines", "records"), uri="file:///w/b.py")
        request = it.ask(CURSOR[0], CURSOR[1], uri="file:///w/b.py")
        await asyncio.sleep(0.1)
        (engine,) = [child for child in served.children() if "engines.embedded.worker" in " ".join(child.cmdline())]
        engine.kill()
        async with asyncio.timeout(DEADLINE_S):
            await request  # answered, with something or with nothing
        it.insert(0, 0, "import sys\n")
        item = None
        for attempt in range(1_000):
            it.insert(0, 0, f"# {attempt}\n")
            if (item := await it.suggestion(CURSOR[0] + 2 + attempt, CURSOR[1])) is not None:
                break
            await asyncio.sleep(0.25)
        assert item is not None
        assert it.client.messages == []
        assert (await it.status())["state"] == "ready"
