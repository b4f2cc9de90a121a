"""Bad files through the language server and the command line, with the real engine behind them (issue: bad input)."""

import asyncio
import json
import subprocess
import sys

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
MIXED = "import os\r\n\r\nfirst = [1, 2]\rlast = first\n\ndef second(b):\r\n    return "
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


async def test_line_ends_of_every_kind_are_kept_apart(served, tmp_path):
    async with editor(tmp_path, "--gateway", served.url) as it:
        answer = await answered(it, MIXED, 6, len("    return "))
        for item in answer.items if answer is not None else []:
            assert (item.range.start.line, item.range.end.line) == (6, 6)
            assert "\n" not in item.insert_text.replace(
                "\r\n", ""
            )  # the document's own ending, where there are several
        assert (await it.status())["counts"]["requests"] == 1, answer


async def test_edits_of_carriage_returns_leave_server_and_editor_alike(served, tmp_path):
    async with editor(tmp_path, "--gateway", served.url) as it:
        uri = f"file:///w/bad_{next(URIS)}.py"
        it.open("a = 1\rb = 2\r\nc = 3\n", uri=uri)
        it.insert(0, 5, "\n", uri=uri)  # the lone carriage return becomes one half of a line: "a = 1\n\r"
        it.insert(3, 0, "def f():\r\n    return ", uri=uri)
        async with asyncio.timeout(DEADLINE_S):
            answer = await it.ask(4, len("    return "), uri=uri, kind=1)
        for item in answer.items if answer is not None else []:
            assert item.insert_text.startswith("return ")
            assert item.range.start.character == 4


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


async def test_a_version_that_runs_backwards_changes_nothing_for_what_follows(served, tmp_path):
    uri = "file:///w/sums.py"
    async with editor(tmp_path, "--gateway", served.url) as it, asyncio.timeout(DEADLINE_S):
        it.open("def add(a, b):\n    return ", uri=uri)
        wanted = await it.ask(1, 11, uri=uri, kind=1)
    async with editor(tmp_path, "--gateway", served.url) as it, asyncio.timeout(DEADLINE_S):
        it.open("def add(a, b):\n    return", uri=uri)
        it.version = -7
        it.insert(1, 10, " ", uri=uri)
        answer = await it.ask(1, 11, uri=uri, kind=1)
        assert inserted(answer) == inserted(wanted) != []


def foretype(served, *arguments):
    command = [sys.executable, "-c", "from foretype_client.commands.cli import main; main()", *map(str, arguments)]
    return subprocess.run(
        [*command, "--gateway", served.url], capture_output=True, check=False, text=True, timeout=DEADLINE_S
    )


@pytest.mark.parametrize(
    ("content", "place"),
    [
        pytest.param(
            FULL_OF_TOKENS.encode() + b"x = ",
            f"{FULL_OF_TOKENS.count(chr(10)) + 1}:5",
            id="control tokens",
            marks=pytest.mark.slow,
        ),
        pytest.param(MIXED.encode(), "7:12", id="mixed line ends"),
        pytest.param(b" " * 1_000_001, "1:1000002", id="a million blanks"),
    ],
)
def test_the_command_line_completes_odd_files(served, tmp_path, content, place):
    path = tmp_path / "odd.py"
    path.write_bytes(content)
    result = foretype(served, "complete", f"{path}:{place}", "--json")
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert not any(token in answer["text"] for token in TOKENS if token.encode() not in content)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"x = 1\n" * 8_400_000, "50,400,000 bytes"), (b"\x7fELF\0\0" * 50, "binary"), (b"x = '\xff\xfe'", "not UTF-8")],
    ids=["50 MB", "binary", "no UTF-8"],
)
def test_the_command_line_refuses_what_is_no_source_file(served, tmp_path, content, message):
    path = tmp_path / "odd.py"
    path.write_bytes(content)
    result = foretype(served, "complete", f"{path}:1:1")
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr
    assert "Traceback" not in result.stderr
