"""The language server with the shipped model behind a real gateway."""

import pytest
from e2e.lsp_support import editor, gateway

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
