"""Any sequence of messages: nothing raises, every request has one answer in the end, and nothing is answered twice."""

import asyncio
import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lsp_server.conftest import URI, Client, settle

METHODS = [
    "textDocument/didOpen",
    "textDocument/didChange",
    "textDocument/didClose",
    "textDocument/inlineCompletion",
    "textDocument/didShowCompletion",
    "textDocument/didPartiallyAcceptCompletion",
    "workspace/executeCommand",
    "workspace/didChangeConfiguration",
    "workspace/didChangeWorkspaceFolders",
    "foretype/status",
    "initialize",
    "initialized",
    "$/cancelRequest",
    "$/setTrace",
    "window/workDoneProgress/cancel",
    "textDocument/hover",
    "no/such/method",
]
scalars = st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats() | st.sampled_from(["", "x", URI, "\ud800"])
keys = st.sampled_from(
    [
        "textDocument",
        "uri",
        "text",
        "version",
        "languageId",
        "contentChanges",
        "range",
        "start",
        "end",
        "line",
        "character",
        "position",
        "context",
        "triggerKind",
        "selectedCompletionInfo",
        "item",
        "command",
        "arguments",
        "acceptedLength",
        "settings",
        "foretype",
        "id",
        "event",
        "added",
        "removed",
        "name",
    ]
)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4), max_leaves=8
)
points = st.fixed_dictionaries({"line": st.integers(0, 4), "character": st.integers(0, 9)})
changes = st.fixed_dictionaries(
    {"text": st.text(max_size=4)}, optional={"range": st.fixed_dictionaries({"start": points, "end": points}) | scalars}
)
document = st.fixed_dictionaries(
    {"uri": st.sampled_from([URI, "file:///w/b.py"])},
    optional={"version": st.integers(0, 9), "text": st.text(max_size=9), "languageId": st.just("python")},
)
likely = st.fixed_dictionaries(
    {"textDocument": document},
    optional={
        "contentChanges": st.lists(changes, max_size=3),
        "position": points,
        "context": st.fixed_dictionaries({"triggerKind": st.sampled_from([1, 2])}),
        "id": st.integers(0, 12),
    },
)
messages = st.lists(
    st.tuples(st.sampled_from(METHODS), likely | anything, st.booleans(), st.booleans()), min_size=1, max_size=12
)


async def exchange(sequence, initialized):
    client = Client()
    if initialized:
        client.initialize()
        client.open("x = 1\n")
    asked = []
    for number, (method, params, is_request, pause) in enumerate(sequence, 1000):
        message = {"method": method, "params": params}
        if is_request:
            asked.append(number)
            message["id"] = number
        client.send(message)
        if pause:
            await settle()
    shutdown = client.request("shutdown")
    await settle()
    answered = Counter(m["id"] for m in client.messages if "method" not in m)
    assert [answered[id] for id in asked] == [1] * len(asked)
    assert answered[shutdown] == 1
    json.dumps(client.messages)


@given(messages, st.booleans())
def test_every_request_has_exactly_one_answer(sequence, initialized):
    asyncio.run(exchange(sequence, initialized))


@pytest.mark.slow
@settings(max_examples=500)
@given(messages, st.booleans())
def test_every_request_has_exactly_one_answer_in_many_sequences(sequence, initialized):
    asyncio.run(exchange(sequence, initialized))


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_any_bytes_at_all_are_survived(bodies):
    async def run():
        client = Client()
        client.initialize()
        for body in bodies:
            client.server.protocol.receive(body)
        id = client.request("foretype/status")
        assert client.answers(id)[0]["result"]["state"]

    asyncio.run(run())
