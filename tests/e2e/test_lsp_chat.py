"""Explain, document and complete this function: real server, real gateway, a chat server that follows a script."""

import asyncio

import pytest
from e2e.lsp_support import DEADLINE_S, URI, editor
from lsprotocol import types
from pygls.exceptions import JsonRpcException

pytestmark = pytest.mark.slow  # whole processes

SOURCE = "def add(a, b):\n    return a + b\n\n\ndef scale(v):\n    pass\n"
EXPLAIN, DOCUMENT, COMPLETE = "foretype.chat.explain", "foretype.chat.document", "foretype.chat.completeFunction"
EDITS = types.WorkspaceClientCapabilities(
    apply_edit=True, workspace_edit=types.WorkspaceEditClientCapabilities(document_changes=True)
)


def call(it, command, line, end=None, id=None, **more):
    start = types.Position(line, 4)
    span = {"start": {"line": line, "character": 4}, "end": {"line": line, "character": end or start.character}}
    target = {"textDocument": {"uri": URI}, "range": span} | more
    return it.send("workspace/executeCommand", types.ExecuteCommandParams(command, [target]), id=id)


async def test_the_three_commands_with_the_models_of_a_gateway(chatting, chat, tmp_path):
    async with editor(tmp_path, "--gateway", chatting.url, workspace=EDITS) as it, asyncio.timeout(2 * DEADLINE_S):
        edits, shown, pieces = [], [], []
        features = it.client.protocol.fm.features
        features[types.WORKSPACE_APPLY_EDIT] = lambda params: (
            edits.append(params.edit.document_changes[0]) or types.ApplyWorkspaceEditResult(applied=True)
        )
        features[types.WINDOW_SHOW_MESSAGE] = lambda params: shown.append(params.message)
        features[types.PROGRESS] = lambda params: pieces.append(params.value["text"])
        it.open(SOURCE)

        chat.again("It ", "adds ", "two numbers.")
        result = await call(it, EXPLAIN, 1, 16, partialResultToken="part", show=True)
        assert (result["kind"], result["text"]) == ("explain", "It adds two numbers.")
        assert shown == ["It adds two numbers."] and "".join(pieces) == shown[0]
        (body,) = chat.bodies
        assert body["messages"][0]["role"] == "system" and "return a + b" in body["messages"][1]["content"]

        chat.again('"""Scale a vector.\n\n', "Raises nothing.", '"""')
        assert (await call(it, DOCUMENT, 4))["applied"] is True
        (made,) = edits[0].edits
        assert edits[0].text_document.version == it.version
        assert made.new_text == '\n    """Scale a vector.\n\n    Raises nothing.\n    """'
        assert made.range.start == made.range.end == types.Position(4, 13)

        chat.again()
        assert (await call(it, COMPLETE, 4))["applied"] is True
        (made,) = edits[1].edits
        assert made.range == types.Range(types.Position(4, 13), types.Position(5, 8))
        assert made.new_text.startswith("\n    ") and "return None" in made.new_text
        assert chat.bodies == []  # blocks have the fast pool here

        chat.again("One ", "two")
        chat.go.clear()
        waiting = call(it, EXPLAIN, 1, id="mine")
        await asyncio.to_thread(chat.asked.wait, DEADLINE_S)
        it.cancel("mine")
        with pytest.raises((JsonRpcException, asyncio.CancelledError)):
            await waiting
        assert await asyncio.to_thread(chat.left.wait, DEADLINE_S), "the chat server was left to write on"
