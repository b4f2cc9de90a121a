"""What is left out is left out at once, is told to nobody, says why, and comes back when the reason has gone."""

from typing import Any

import pytest

URI = "file:///w/a.py"
CODE = "def f():\n    \n"
KEY = "K = '''-----BEGIN PRIVATE KEY-----\nabc\n'''\n"
ICON = "ICON = '" + "M10,20L30,40" * 250 + "'\n"


def told(client: Any) -> list[str]:
    return [what for what, *_ in client.flow.told if what in ("opened", "closed", "excluded")]


async def asks(client: Any, line: int) -> bool:
    """Whether a question there comes to the flow."""
    before = len(client.flow.asked)
    await client.asking(line, 4)
    return len(client.flow.asked) > before


def at_top(client: Any, lines: int, text: str, version: int) -> None:
    span = {"start": {"line": 0, "character": 0}, "end": {"line": lines, "character": 0}}
    client.change({"range": span, "text": text}, version=version)


async def test_a_key_that_is_pasted_closes_the_document_and_taken_out_opens_it(client: Any) -> None:
    client.open(CODE)
    at_top(client, 0, KEY, 2)
    assert told(client) == ["opened", "closed", "excluded"]
    assert not await asks(client, 4)
    client.server.status.connected("a model")
    assert "private key" in client.server.status.status.detail
    assert "PRIVATE" not in "".join(str(one) for one in client.flow.told)
    client.insert(4, 4, "x", version=3)
    assert told(client) == ["opened", "closed", "excluded"]
    at_top(client, 3, "", 4)
    assert told(client)[-1] == "opened" and client.text() == "def f():\n    x\n"
    assert await asks(client, 1)


async def test_a_key_that_was_there_lets_the_file_in_when_it_goes(client: Any) -> None:
    client.open("x = 1\n" * 2_000 + KEY + CODE)
    assert told(client) == [] and client.text() == ""
    assert not await asks(client, 2_004)
    span = {"start": {"line": 2_000, "character": 0}, "end": {"line": 2_003, "character": 0}}
    client.change({"range": span, "text": ""})
    assert told(client) == ["opened"] and client.text() == "x = 1\n" * 2_000 + CODE


async def test_what_its_name_leaves_out_is_not_kept(client: Any) -> None:
    client.open("TOKEN=1\n", uri="file:///w/.env")
    held = client.server.documents.get("file:///w/.env")
    assert held.lines.text == "" and not held.followed


async def test_one_long_line_is_silent_by_itself_and_says_so(client: Any) -> None:
    client.open(ICON + CODE)
    assert await asks(client, 2)
    assert not await asks(client, 0)
    client.server.status.connected("a model")
    assert client.server.status.status.detail == "none in a.py: the line is very long"


async def test_a_machine_that_is_spared_is_told_while_it_is(client: Any) -> None:
    client.open(CODE)
    client.server.status.connected("a model")
    client.flow.why_spared = "the battery saver is on"
    await asks(client, 0)
    assert client.server.status.status.detail == "only when you ask: the battery saver is on"
    client.flow.why_spared = None
    await asks(client, 0)
    assert client.server.status.status.detail == ""


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"excludedGlobs": ["**/*.md", "**/a.py", "**/*.py"]}, "excluded by **/a.py"),
        ({"enable": {"python": False}}, "switched off for python"),
    ],
)
async def test_options_leave_out_what_is_open_and_let_it_in_again(client: Any, options: Any, why: str) -> None:
    client.open(CODE)
    client.notify("workspace/didChangeConfiguration", settings={"foretype": options})
    assert told(client)[:3] == ["opened", "closed", "excluded"]
    assert not await asks(client, 1)
    assert client.server.documents.obstacle(client.server.documents.get(URI)) == why
    client.insert(1, 4, "x")
    client.notify("workspace/didChangeConfiguration", settings={"foretype": {}})
    assert told(client)[-1] != "closed" and await asks(client, 1)


async def test_rules_that_were_saved_end_what_was_made_of_others(client: Any) -> None:
    client.open(CODE)
    client.notify("textDocument/didSave", textDocument={"uri": "file:///w/.gitignore"})
    assert told(client) == ["opened", "excluded"]
