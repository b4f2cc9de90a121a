"""Bad files through the language server and the command line, with the real engine behind them (issue: bad input)."""

import asyncio

import pytest
from e2e.lsp_support import DEADLINE_S, editor, gateway

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(180)]

TOKENS = (
    "<|repo_name|>",
    "<|file_sep|>",
    "<|fim_prefix|>",
    "<|fim_suffix|>",
    "<|fim_tail|>",
    "<|fim_middle|>",
    "<|end_of_middle|>",
    "<|endoftext|>",
)
FULL_OF_TOKENS = "".join(f"SPECIAL_{number} = '{token}'\n" for number, token in enumerate(TOKENS * 20))
URIS = iter(range(1000))


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with gateway(tmp_path_factory.mktemp("gateway"), engine="embedded") as running:
        yield running


async def answered(it, text, line, character, language="python", uri=None):
    """What is suggested in a document of its own; fails when the request gets no answer."""
    uri = uri or f"file:///w/bad_{next(URIS)}.py"
    it.open(text, uri=uri, language=language)
    async with asyncio.timeout(DEADLINE_S):
        return await it.ask(line, character, uri=uri, kind=1)


def inserted(answer):
    return [item.insert_text for item in answer.items] if answer is not None else []


@pytest.mark.slow
async def test_a_file_full_of_control_tokens_is_a_file(served, tmp_path):
    async with editor(tmp_path, "--gateway", served.url) as it:
        text = FULL_OF_TOKENS + "def special(name):\n    return "
        answer = await answered(it, text, text.count("\n"), len("    return "))
        for insert in inserted(answer):
            assert insert.startswith("return ")
        status = await it.status()
        assert (status["state"], status["counts"]["requests"]) == ("ready", 1)  # the model was asked, and did not choke


ODD = {
    "empty": ("", 0),
    "byte order mark": ("\ufeff", 0),
    "carriage return": ("\r", 1),
    "one long line": ("x" * 200_000, 0),
    "blank lines": ("\n" * 200_000, 200_000),
    "a million blanks": (" " * 1_000_001 + "x", 0),
}


async def test_texts_of_odd_shape_are_answered(served, tmp_path):
    async with editor(tmp_path, "--gateway", served.url) as it:
        for text, line in ODD.values():
            await answered(it, text, line, 1_000_000)
        good = await answered(it, "def add(a, b):\n    return ", 1, 11, uri="file:///w/sums.py")
        assert inserted(good), "the next document is served as if nothing had been"
