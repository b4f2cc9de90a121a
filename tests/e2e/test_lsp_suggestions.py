"""The language server as an editor meets it: real process, real gateway, an engine that follows a script."""

import pytest
from e2e.lsp_support import ACCEPT, INLINE, URI, editor, gateway, raw_editor
from lsprotocol import types
from pygls.exceptions import JsonRpcException

SOURCE = "def f(a):\n    x = 1\n\ndef g(b):\n    return \n"


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """A gateway that never comes to its first token in the life of a test."""
    with gateway(tmp_path_factory.mktemp("gateway"), prefill_s=10.0) as running:
        yield running


async def test_a_suggestion_comes_with_range_and_command_and_accepting_is_taken(served, tmp_path):
    async with editor(tmp_path, "--gateway", served.url) as it:
        it.open(SOURCE)
        item = await it.suggestion(4, 11)
        assert item.insert_text == "return return  # scripted"
        assert item.range == types.Range(types.Position(4, 4), types.Position(4, 11))
        assert item.command.command == ACCEPT
        it.insert(4, 11, item.insert_text[7:])
        await it.taken(item)
        assert (await it.status())["counts"]["accepted"] == 1


async def test_what_is_put_in_whole_is_taken_where_the_editor_runs_no_command(served, tmp_path):
    """Helix runs none of a completion item, and writes its whole range."""
    async with editor(tmp_path, "--gateway", served.url) as it:
        it.open(SOURCE)
        item = await it.suggestion(4, 11)
        it.replace(item.range, item.insert_text)
        assert (await it.status())["counts"]["accepted"] == 1
        await it.taken(item)
        assert (await it.status())["counts"]["accepted"] == 1


async def test_typing_through_is_answered_from_the_cache_without_another_request(served, tmp_path):
    async with editor(tmp_path, "--gateway", served.url) as it:
        it.open(SOURCE)
        whole = await it.suggestion(4, 11)
        for typed, char in enumerate(whole.insert_text[7:13]):
            it.insert(4, 11 + typed, char)
            item = await it.suggestion(4, 12 + typed)
            assert item.insert_text == whole.insert_text
            assert item.range.end.character == 12 + typed
        counts = (await it.status())["counts"]
        assert (counts["requests"], counts["cacheHits"]) == (1, 6)


async def test_a_cancelled_request_is_answered_so_and_the_next_one_works(slow, tmp_path):
    async with editor(tmp_path, "--gateway", slow.url) as it:
        it.open("alpha = 1\nbeta = ")
        request = it.ask(1, 7, id="to-cancel")
        await it.until_requests(1)
        it.cancel("to-cancel")
        with pytest.raises(JsonRpcException) as raised:
            await request
        assert raised.value.code == -32800
        status = await it.status()
        assert status["counts"]["cancelled"] == 1
        assert status["state"] == "ready"


async def test_changes_are_handled_while_a_generation_runs(slow, tmp_path):
    async with editor(tmp_path, "--gateway", slow.url) as it:
        it.open("alpha = 1\nbeta = ", uri="file:///w/b.py")
        running = it.ask(1, 7, uri="file:///w/b.py")
        await it.until_requests(1)
        it.open("")
        for i in range(500):
            it.insert(0, i, "x")
        # Answered behind all of the changes, and before the generation.
        assert (await it.status())["counts"]["requests"] == 1
        assert not running.done()
        it.insert(1, 7, "0", uri="file:///w/b.py")
        assert await running is None


async def test_bad_parameters_are_answered_and_the_connection_lives_on(served, tmp_path):
    async with raw_editor(tmp_path, "--gateway", served.url) as it:
        await it.until_ready()
        it.open(SOURCE)
        right = {"textDocument": {"uri": URI}, "position": {"line": 4, "character": 11}, "context": {"triggerKind": 2}}
        wrong = [None, {}, [right], {**right, "context": {"triggerKind": 0}}, {**right, "position": {"line": -1}}]
        for id, params in enumerate(wrong, 100):
            it.send(id=id, method=INLINE, params=params)
            assert (await it.answer(id))["error"]["code"] == -32602
        it.send(id=200, method=INLINE, params={**right, "formattingOptions": {"tabSize": 4}, "unknown": []})
        assert (await it.answer(200))["result"]["items"][0]["insertText"] == "return return  # scripted"
        assert not [message for message in it.messages if message.get("method") == "window/showMessage"]
