"""Several pages, one language server: which message goes where."""

import asyncio
import json
import logging
import sys
from pathlib import Path

import pytest
from foretype_jupyter.relay import Relay
from foretype_jupyter.routing import Routing
from hypothesis import given
from hypothesis import strategies as st

INLINE = "textDocument/inlineCompletion"


def request(id, method=INLINE, **params):
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def notification(method, **params):
    return {"jsonrpc": "2.0", "method": method, "params": params}


def opened(uri):
    return notification("notebookDocument/didOpen", notebookDocument={"uri": uri, "cells": []}, cellTextDocuments=[])


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=20), st.randoms())
def test_every_answer_goes_to_the_page_that_asked_with_the_id_that_it_gave(asked, rng):
    routing = Routing()
    for page in "abc":
        routing.join(page)
    sent = []
    for page, id in asked:
        on, back = routing.from_page(page, request(id, place=len(sent)))
        assert back is None
        sent.append((on["id"], page, id))
    assert len({ours for ours, _, _ in sent}) == len(sent)
    rng.shuffle(sent)
    for ours, page, id in sent:
        answer = {"jsonrpc": "2.0", "id": ours, "result": None}
        assert routing.from_server(answer) == ([(page, {**answer, "id": id})], None)
        assert routing.from_server(answer) == ([], None)


@pytest.fixture
def routing():
    return Routing()


def test_a_page_cancels_its_own_questions_alone(routing):
    routing.join("a")
    routing.join("b")
    ours = routing.from_page("a", request(1))[0]["id"]
    assert routing.from_page("b", notification("$/cancelRequest", id=1)) == (None, None)
    assert routing.from_page("a", notification("$/cancelRequest", id=1))[0]["params"] == {"id": ours}


def test_what_a_page_leaves_behind_is_cancelled_and_closed(routing):
    routing.join("a")
    ours = routing.from_page("a", request(1))[0]["id"]
    routing.from_page("a", opened("file:///a.ipynb?tab=1"))
    routing.from_page("a", opened("file:///b.ipynb?tab=1"))
    routing.from_page("a", notification("notebookDocument/didClose", notebookDocument={"uri": "file:///a.ipynb?tab=1"}))
    cancelled, closed = routing.leave("a")
    assert cancelled["params"] == {"id": ours}
    assert closed["params"]["notebookDocument"] == {"uri": "file:///b.ipynb?tab=1"}
    assert routing.from_server({"jsonrpc": "2.0", "id": ours, "result": None}) == ([], None)
    assert routing.leave("a") == []


def test_what_is_said_of_a_cell_goes_to_the_page_that_has_it_and_the_status_to_all(routing):
    for page in "ab":
        routing.join(page)
        routing.from_page(page, opened(f"file:///n.ipynb?tab={page}"))
    grew = notification("foretype/suggestionGrew", textDocument={"uri": "file:///n.ipynb?tab=b#c1"}, id="x")
    assert routing.from_server(grew) == ([("b", grew)], None)
    status = notification("foretype/didChangeStatus", state="ready")
    assert routing.from_server(status) == ([("a", status), ("b", status)], None)


def test_a_page_asks_for_the_next_edit_and_tells_what_becomes_of_it(routing):
    routing.join("a")
    on, back = routing.from_page("a", request(1, "textDocument/copilotInlineEdit"))
    assert on["method"] == "textDocument/copilotInlineEdit" and back is None
    for method in ("textDocument/didShowInlineEdit", "foretype/nextEditJumped", "foretype/nextEditEnded"):
        assert routing.from_page("a", notification(method, id="n1")) == (notification(method, id="n1"), None)


@pytest.mark.parametrize("method", ["shutdown", "initialize", "textDocument/codeAction"])
def test_pages_may_not_ask_everything(method, routing):
    routing.join("a")
    on, back = routing.from_page("a", request(4, method))
    assert on is None and back["id"] == 4 and back["error"]["code"] == -32601


@pytest.mark.parametrize("method", ["exit", "textDocument/didOpen", "workspace/didChangeWorkspaceFolders"])
def test_pages_may_not_tell_everything(method, routing):
    routing.join("a")
    assert routing.from_page("a", notification(method)) == (None, None)


@pytest.mark.parametrize(
    "message", [None, 3, [], "x", {"method": INLINE, "params": []}, {"id": True, "method": INLINE}]
)
def test_what_is_no_message_is_refused(message, routing):
    routing.join("a")
    on, back = routing.from_page("a", message)
    assert on is None and back["error"]["code"] in (-32600, -32601)


def test_what_the_language_server_asks_of_an_editor_is_answered_for_the_pages():
    asked = {"jsonrpc": "2.0", "id": 9, "method": "client/registerCapability", "params": {}}
    to_pages, back = Routing().from_server(asked)
    assert to_pages == [] and back["id"] == 9 and back["error"]["code"] == -32601


class Page:
    def __init__(self):
        self.heard, self.ended = asyncio.Queue(), asyncio.get_running_loop().create_future()

    def send(self, message):
        self.heard.put_nowait(message)

    def end(self, reason):
        self.ended.set_result(reason)

    async def next(self):
        async with asyncio.timeout(60):
            return await self.heard.get()


ECHO = """
import json, sys
sys.path.insert(0, sys.argv[1])
from foretype_lsp.transport.framing import Framing, frame
framing, given = Framing(), sys.stdin.buffer.raw
while data := given.read(65536):
    for body in map(json.loads, framing.feed(data)):
        if body["method"] == "foretype/cursorRested":
            sys.exit(3)
        sys.stdout.buffer.write(frame(json.dumps({"jsonrpc": "2.0", "id": body.get("id"), "result": body}).encode()))
        sys.stdout.buffer.flush()
"""


def relay(command, tmp_path, linger_s=60.0):
    return Relay(command, tmp_path, version="0", linger_s=linger_s, log=logging.getLogger("test"))


def echoing():
    return [sys.executable, "-c", ECHO, str(Path(__file__).parents[2] / "lsp_server")]


async def test_one_process_serves_all_pages_and_ends_some_time_after_the_last(tmp_path):
    it = relay(echoing(), tmp_path, linger_s=0.0)
    one, other = Page(), Page()
    await asyncio.gather(it.join(one), it.join(other))
    for page in (one, other):
        hello = await page.next()
        assert (hello["method"], hello["params"]) == ("foretype/hello", {"rootUri": tmp_path.as_uri()})
    process = it._process
    for page in (one, other):
        it.receive(page, json.dumps(request(1, text="x")))
        answer = await page.next()
        assert answer["id"] == 1 and answer["result"]["params"] == {"text": "x"}
    it.leave(one)
    assert process.returncode is None
    it.leave(other)
    async with asyncio.timeout(60):
        assert await process.wait() == 0
    again = Page()
    await it.join(again)
    assert it._process is not process
    it.leave(again)
    async with asyncio.timeout(60):
        await it._reading


async def test_pages_are_ended_with_the_language_server_and_the_next_starts_another(tmp_path):
    it = relay(echoing(), tmp_path, linger_s=0.0)
    page = Page()
    await it.join(page)
    await page.next()
    it.receive(page, json.dumps(notification("foretype/cursorRested")))
    async with asyncio.timeout(60):
        assert await page.ended == "the language server ended"
    it.leave(page)
    again = Page()
    await it.join(again)
    it.receive(again, json.dumps(request(2)))
    assert [(await again.next())["method"], (await again.next())["id"]] == ["foretype/hello", 2]
    it.leave(again)
    async with asyncio.timeout(60):
        await it._reading


async def test_a_command_that_is_not_there_is_named_in_the_log_with_the_remedy(tmp_path, caplog):
    it = relay([str(tmp_path / "nothing")], tmp_path)
    page = Page()
    await it.join(page)
    assert "does not start" in await page.ended
    assert "No such file" in caplog.text and "c.Foretype.command" in caplog.text


async def test_a_home_folder_is_not_indexed(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    it = relay(echoing(), tmp_path, linger_s=0.0)
    sent = []
    write = it._write
    it._write = lambda message: (sent.append(message), write(message))
    page = Page()
    await it.join(page)
    assert sent[0]["method"] == "initialize" and sent[0]["params"]["workspaceFolders"] == []
    it.leave(page)
    async with asyncio.timeout(60):
        await it._reading
