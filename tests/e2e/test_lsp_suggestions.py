"""The language server as an editor meets it: real process, real gateway, an engine that follows a script."""

import asyncio

import pytest
from e2e.lsp_support import ACCEPT, editor
from lsprotocol import types

SOURCE = "def f(a):\n    x = 1\n\ndef g(b):\n    return \n"


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
