"""The language server as an editor meets it: real process, real gateway, an engine that follows a script."""

import asyncio

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


@pytest.mark.parametrize(("encoding", "column"), [("utf-8", 19), ("utf-16", 15), ("utf-32", 14)])
async def test_positions_are_right_behind_an_emoji_and_cjk(served, tmp_path, encoding, column):
    async with editor(tmp_path, "--gateway", served.url, encodings=[encoding]) as it:
        it.open('name = "😀语" + \n')
        it.insert(0, column, "x")
        item = await it.suggestion(0, column + 1)
        assert item.insert_text.startswith('name = "😀语" + x')
        assert item.range == types.Range(types.Position(0, 0), types.Position(0, column + 1))


@pytest.mark.slow
async def test_every_one_of_fifty_quick_requests_is_answered_once(served, tmp_path):
    async with editor(tmp_path, "--gateway", served.url) as it:
        it.open(SOURCE)
        requests = []
        typed = "a_name_that_is_long_enough_to_be_typed_in_50_keys_x"[:50]
        for i, char in enumerate(typed):
            it.insert(4, 11 + i, char)
            requests.append(it.ask(4, 12 + i))
        answers = await asyncio.gather(*requests)
        assert answers[:-1] == [None] * 49
        assert answers[-1].items[0].insert_text.startswith("return " + typed)
        counts = (await it.status())["counts"]
        assert counts["answered"] == 50
        assert counts["requests"] < 50


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


async def test_an_older_request_is_null_at_once_when_the_next_one_comes(slow, tmp_path):
    async with editor(tmp_path, "--gateway", slow.url) as it:
        it.open("alpha = 1\nbeta = ")
        first = it.ask(1, 7)
        await it.until_requests(1)
        second = it.ask(1, 6, id="second")
        assert await first is None
        assert not second.done()
        it.cancel("second")
        with pytest.raises(JsonRpcException):
            await second


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


@pytest.mark.slow
async def test_a_local_candidate_needs_no_gateway(tmp_path):
    async with editor(tmp_path, "--gateway", "ws://127.0.0.1:9/v1/stream", ready=False) as it:
        await it.until("degraded")
        blocks = [f"self.first_value = compute(first)\nprint({n}, alpha)\n\n" for n in range(4)]
        it.open("".join(blocks) + "self.fir")  # often enough to be sure, and never the line above
        item = await it.suggestion(12, 8)
        assert item.insert_text == "self.first_value = compute(first)"
        assert (await it.status())["counts"]["requests"] == 0


@pytest.mark.slow
async def test_what_the_completion_menu_has_selected_begins_the_suggestion(served, tmp_path):
    async with editor(tmp_path, "--gateway", served.url) as it:
        it.open("name = 1\nna\n")
        selected = types.SelectedCompletionInfo(types.Range(types.Position(1, 0), types.Position(1, 2)), "nonsense")
        assert await it.suggestion(1, 2, selected=selected) is None


@pytest.mark.slow
async def test_with_popup_the_same_suggestion_is_an_item_of_the_completion_menu(served, tmp_path):
    async with raw_editor(tmp_path, "--gateway", served.url, "--popup") as it:
        await it.until_ready()
        it.open(SOURCE)
        where = {"textDocument": {"uri": URI}, "position": {"line": 4, "character": 11}}
        it.send(id=1, method="textDocument/completion", params={**where, "context": {"triggerKind": 1}})
        result = (await it.answer(1))["result"]
        assert result["isIncomplete"] is True
        (item,) = result["items"]
        assert item["label"] == "return return  # scripted"
        assert item["textEdit"]["newText"] == "return return  # scripted"
        assert item["textEdit"]["range"]["start"] == {"line": 4, "character": 4}
        it.send(id=2, method=INLINE, params={**where, "context": {"triggerKind": 2}})
        assert (await it.answer(2))["error"]["code"] == -32601


@pytest.mark.slow
async def test_documents_that_are_on_no_disk_are_completed_too(served, tmp_path):
    notebook, remote = "vscode-notebook-cell:/w/a.ipynb#W0sZmlsZQ%3D%3D", "vscode-remote://ssh-remote+box/w/a.py"
    async with editor(tmp_path, "--gateway", served.url, folders=[tmp_path]) as it:
        for uri in ("untitled:Untitled-1", notebook, remote):
            it.open(SOURCE, uri=uri)
            assert (await it.suggestion(4, 11, uri=uri)).insert_text == "return return  # scripted", uri
            assert it.client.messages == [], uri


@pytest.mark.slow
async def test_strings_are_left_alone_unless_the_option_says_otherwise(served, tmp_path):
    async with editor(tmp_path, "--gateway", served.url) as it:
        it.open("name = 'ab'\n")
        it.insert(0, 10, "c")
        assert await it.suggestion(0, 11) is None
        assert (await it.status())["counts"]["requests"] == 0
        it.configure(inStrings={"python": True})
        await it.until("ready")
        async with asyncio.timeout(300):
            while await it.suggestion(0, 11) is None:  # noqa: ASYNC110 - another client takes over
                await asyncio.sleep(0.05)
