"""A server without a pipe: message bodies in, decoded messages out, and a flow whose answers the test gives."""

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from foretype_client.flow.suggestion import FlowState, FlowStatus, Origin, Suggestion
from foretype_context.edits import pace
from foretype_lsp.next_edit import other_files
from foretype_lsp.server import Server
from foretype_lsp.transport.framing import Framing
from foretype_wire.tasks import end_tasks

URI = "file:///w/a.py"


@dataclass
class ScriptedFlow:
    """Records what it is told; `suggest` waits until the test answers or cancels it."""

    told: list = field(default_factory=list)
    asked: list = field(default_factory=list)
    cancelled: int = 0
    why_spared: Any = None

    def document_opened(self, snapshot):
        self.told.append(("opened", snapshot.text))

    def document_changed(self, change):
        self.told.append(("changed", change.after.text))

    def typed(self, snapshot, offset):
        self.told.append(("typed", offset))

    def document_closed(self, snapshot):
        self.told.append(("closed", snapshot.uri))

    def excluded(self, uris, *, others_come=False):
        self.told.append(("excluded", list(uris)))

    async def suggest(self, snapshot, offset, *, trigger, selected=None):
        answer = asyncio.get_running_loop().create_future()
        self.asked.append((snapshot, offset, trigger, selected, answer))
        try:
            return await answer
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    def answer(self, index, text, replaces=0):
        suggestion = (
            None
            if text is None
            else Suggestion(id=f"s{index % len(self.asked)}", text=text, replaces=replaces, source=Origin.NETWORK)
        )
        self.asked[index][4].set_result(suggestion)

    def accepted(self, id):
        self.told.append(("accepted", id))

    def shown(self, id):
        self.told.append(("shown", id))

    def partially_accepted(self, id, characters):
        self.told.append(("partially", id, characters))

    def rested(self, snapshot, offset):
        self.told.append(("rested", snapshot.text, offset))

    def explain(self, id=None):
        return {"id": id or "last", "origin": Origin.CACHE, "plan": None} if id != "unknown" else None

    def spared(self):
        return self.why_spared

    def status(self):
        return FlowStatus(FlowState.READY, "", len(self.asked), 3, 0, 2, 0, 0, 0.75, 12.5, 40.0, {}, 0)


class Client:
    """The editor's end."""

    def __init__(self, **options):
        self.server = Server(**options)
        self.server.protocol.set_writer(self)
        self.flow = ScriptedFlow()
        self.messages = []
        self.arrived = asyncio.Event()
        self._framing = Framing()
        self._id = 0

    async def aclose(self):
        """As a process ends, whatever was not answered."""
        self.server.next_edits.close()
        await self.server.suggestions.close()
        futures = self.server.protocol._request_futures.values()
        await end_tasks(*(future for future in futures if isinstance(future, asyncio.Future)))

    def write(self, data):
        self.messages += map(json.loads, self._framing.feed(data))
        self.arrived.set()

    def send(self, message):
        self.server.protocol.receive(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def notify(self, method, **params):
        self.send({"method": method, "params": params})

    def request(self, method, **params):
        self._id += 1
        self.send({"id": self._id, "method": method, "params": params})
        return self._id

    def initialize(self, *, encodings=None, options=None, capabilities=None, **more):
        capabilities = dict(capabilities or {})
        if encodings:
            capabilities["general"] = {"positionEncodings": encodings}
        id = self.request(
            "initialize", processId=None, capabilities=capabilities, initializationOptions=options, **more
        )
        self.notify("initialized")
        self.server.documents.follow(self.flow)
        return self.answers(id)[0]["result"]

    def open(self, text, uri=URI, language="python", version=1):
        self.notify(
            "textDocument/didOpen",
            textDocument={"uri": uri, "languageId": language, "version": version, "text": text},
        )

    def change(self, *changes, uri=URI, version=2):
        self.notify(
            "textDocument/didChange", textDocument={"uri": uri, "version": version}, contentChanges=list(changes)
        )

    def insert(self, line, character, text, version=2):
        at = {"line": line, "character": character}
        self.change({"range": {"start": at, "end": at}, "text": text}, version=version)

    def ask(self, line, character, uri=URI, kind=2, **more):
        return self.request(
            "textDocument/inlineCompletion",
            textDocument={"uri": uri},
            position={"line": line, "character": character},
            context={"triggerKind": kind, **more},
        )

    async def asking(self, line, character, **more):
        """A question that has reached the flow; its id."""
        id = self.ask(line, character, **more)
        await settle()
        return id

    async def answering(self, index, text):
        self.flow.answer(index, text)
        await settle()

    async def suggested(self, line, character, *, answer):
        """The id of a question that the flow has answered with this text."""
        id = await self.asking(line, character)
        await self.answering(-1, answer)
        return id

    def answers(self, id):
        return [message for message in self.messages if message.get("id") == id and "method" not in message]

    def notifications(self, method):
        return [message["params"] for message in self.messages if message.get("method") == method]

    def text(self, uri=URI):
        return self.server.documents.get(uri).document.text


async def settle():
    """Let everything that is ready run."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def lines_as_elsewhere(monkeypatch):
    """Tests ask where they typed; how long that takes is a test of its own. An index is waited for, as slow as the machine may be."""
    monkeypatch.setattr(pace, "LINE_S", dict.fromkeys(pace.Eagerness, pace.SETTLED_S))
    monkeypatch.setattr(other_files, "_INDEX_S", 60.0)


@pytest.fixture
async def fresh():
    """One that has not said how it wants the server."""
    async with contextlib.aclosing(Client()) as client:
        yield client


@pytest.fixture
async def client(fresh):
    fresh.initialize()
    return fresh


@pytest.fixture
def settled():
    return settle
