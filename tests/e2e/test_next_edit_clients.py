"""Clients of others that speak of next edits: what copilot-lsp and sidekick send, message by message, and nothing of our own.

Read in their sources (copilot-lsp of December 2025, sidekick of March 2026): the first never says that an edit was taken, tells which
document has the focus, and shows every error to its user; the second runs the edit's command only where the server has announced it,
cancels, and shows an edit only if its version is the document's.
"""

import pytest
from e2e.lsp_support import URI, raw_editor

pytestmark = pytest.mark.timeout(120)

TEXT = "def area(width, height):\n    size = width * height\n    print(width)\n    return size\n"
QUESTION = "textDocument/copilotInlineEdit"
MEDIUM = {"nextEdit": {"eagerness": "medium"}}


def opened(it):
    it.open(TEXT, version=0)
    it.send(method="textDocument/didFocus", params={"textDocument": {"uri": URI}})


def changed(it, version, line, start, end, text):
    """A change within one line."""
    place = {"start": {"line": line, "character": start}, "end": {"line": line, "character": end}}
    params = {
        "textDocument": {"uri": URI, "version": version},
        "contentChanges": [{"range": place, "rangeLength": end - start, "text": text}],
    }
    it.send(method="textDocument/didChange", params=params)


def ask(it, id, version, line, character, **more):
    document = {"uri": URI, "version": version}
    position = {"line": line, "character": character}
    it.send(id=id, method=QUESTION, params={"textDocument": document, "position": position, **more})


async def edits(it, id):
    answer = await it.answer(id)
    assert "error" not in answer  # copilot-lsp shows it to its user
    return answer["result"]["edits"]


def place(edit):
    start, end = edit["range"]["start"], edit["range"]["end"]
    return start["line"], start["character"], end["line"], end["character"]


async def test_a_client_as_copilot_lsp_is_served_unchanged(served, tmp_path):
    async with raw_editor(tmp_path, "--untrusted", "--gateway", served.url, options=MEDIUM) as it:
        opened(it)
        changed(it, 1, 0, 9, 14, "breadth")
        ask(it, 1, 1, 0, 16)
        (first,) = await edits(it, 1)
        assert (first["text"], place(first)) == ("breadth", (1, 11, 1, 16))
        assert first["textDocument"] == {"uri": URI, "version": 1}
        it.send(method="textDocument/didShowInlineEdit", params={"item": {"command": first["command"]}})
        changed(it, 2, *place(first)[:2], place(first)[3], first["text"])  # all that it says about having taken it
        ask(it, 2, 2, 1, 18)
        (second,) = await edits(it, 2)
        assert (second["text"], place(second)) == ("breadth", (2, 10, 2, 15))
        ask(it, 3, 1, 1, 18)  # of a version that is not the document's any more
        assert await edits(it, 3) == []


async def test_a_client_as_sidekick_is_served_unchanged(served, tmp_path):
    async with raw_editor(tmp_path, "--untrusted", "--gateway", served.url, options=MEDIUM) as it:
        (announced,) = it.answers(0)
        opened(it)
        changed(it, 1, 0, 9, 14, "breadth")
        ask(it, 1, 1, 0, 16, context={"triggerKind": 2})
        it.send(method="$/cancelRequest", params={"id": 1})
        ask(it, 2, 1, 0, 16, context={"triggerKind": 2})
        (first,) = await edits(it, 2)
        assert first["textDocument"]["version"] == 1
        command = first["command"]
        assert command["command"] in announced["result"]["capabilities"]["executeCommandProvider"]["commands"]
        changed(it, 2, *place(first)[:2], place(first)[3], first["text"])
        it.send(id=3, method="workspace/executeCommand", params={k: command[k] for k in ("command", "arguments")})
        assert "error" not in await it.answer(3)
        ask(it, 4, 2, 1, 18, context={"triggerKind": 2})
        (second,) = await edits(it, 4)
        assert place(second) == (2, 10, 2, 15)
        assert "result" in await it.answer(1) or "error" in await it.answer(1)  # the cancelled one, too
