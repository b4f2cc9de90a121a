"""The chat commands over the protocol, with models whose answers the test gives."""

import asyncio

import pytest
from foretype_client.errors import ChatRefusedError
from foretype_wire.errors import GatewayGoneError, RequestRefusedError
from foretype_wire.messages import ErrorCode
from waiting import until

URI = "file:///w/a.py"
SOURCE = "def add(a, b):\n    return a + b\n\n\ndef scale(v):\n    pass\n"
EXPLAIN, DOCUMENT, COMPLETE = "foretype.chat.explain", "foretype.chat.document", "foretype.chat.completeFunction"
EDITS = {"workspace": {"applyEdit": True, "workspaceEdit": {"documentChanges": True}}}


class ScriptedModels:
    """Remembers what is asked; pieces and blocks are what the test put there, exceptions are raised."""

    def __init__(self):
        self.asked, self.blocks, self.pieces = [], [], []
        self.block_answer = ("return v * 2", "")
        self.gate = asyncio.Event()
        self.gate.set()
        self.closed = 0

    async def chat(self, messages, *, template, max_tokens):
        self.asked.append((template, messages))
        try:
            for piece in self.pieces:
                if isinstance(piece, Exception):
                    raise piece
                await self.gate.wait()
                yield piece
        finally:
            self.closed += 1

    async def block(self, snapshot, offset):
        self.blocks.append((snapshot.text, offset))
        await self.gate.wait()
        if isinstance(self.block_answer, Exception):
            raise self.block_answer
        return self.block_answer


@pytest.fixture
def models(fresh):
    made = ScriptedModels()
    fresh.server.chat.use(made)
    return made


def start(client, capabilities=EDITS, text=SOURCE, program="an editor"):
    id = client.request("initialize", processId=None, capabilities=capabilities, clientInfo={"name": program})
    client.notify("initialized")
    client.server.documents.follow(client.flow)
    client.open(text)
    return client.answers(id)[0]["result"]["capabilities"]


@pytest.fixture
async def client(fresh):
    start(fresh)
    return fresh


def run(client, command, line, character=4, end=None, token=None, **more):
    start = {"line": line, "character": character}
    target = {"textDocument": {"uri": URI}, "range": {"start": start, "end": end or start}} | more
    progress = {} if token is None else {"workDoneToken": token}
    return client.request("workspace/executeCommand", command=command, arguments=[target], **progress)


async def ended(client, id):
    (answer,) = await until(lambda: client.answers(id))  # parsing runs in a thread
    return answer.get("result", answer.get("error"))


async def applied(client, verdict):
    """Answer the server's one `workspace/applyEdit`; returns the edit."""
    asked = await until(lambda: [m for m in client.messages if m.get("method") == "workspace/applyEdit"])
    client.send({"id": asked[0]["id"], "result": verdict})
    return asked[0]["params"]["edit"]["documentChanges"][0]


async def test_an_explanation_is_streamed_and_returned(fresh, models):
    capabilities = start(fresh)
    assert {EXPLAIN, DOCUMENT, COMPLETE} <= set(capabilities["executeCommandProvider"]["commands"])
    models.pieces = ["It ", "adds.\n"]
    id = run(fresh, EXPLAIN, 1, 4, {"line": 1, "character": 16}, token="work", partialResultToken=7)
    assert await ended(fresh, id) == {"kind": "explain", "text": "It adds."}
    ((template, (system, user)),) = models.asked
    assert (template, system["role"]) == ("explain", "system")
    assert "return a + b" in user["content"] and "def " not in user["content"] and "a.py" in user["content"]
    told = fresh.notifications("$/progress")
    assert [one["value"]["text"] for one in told if one["token"] == 7] == ["It ", "adds.\n"]
    assert [one["value"]["kind"] for one in told if one["token"] == "work"] == ["begin", "report", "report", "end"]
    assert fresh.notifications("window/showMessage") == []


async def test_the_server_shows_an_explanation_where_the_editor_would_not(client, models):
    models.pieces = ["It adds."]
    await ended(client, run(client, EXPLAIN, 1, show=True))
    assert client.notifications("window/showMessage") == [{"type": 3, "message": "It adds."}]
    assert "def add" in models.asked[0][1][1]["content"] and "scale" not in models.asked[0][1][1]["content"]


async def test_a_docstring_is_an_edit_of_the_version_it_was_made_for(client, models):
    models.pieces = ["Scale a vector."]
    id = run(client, DOCUMENT, 4)
    edit = await applied(client, {"applied": True})
    assert edit["textDocument"] == {"uri": URI, "version": 1}
    at = {"line": 4, "character": 13}
    assert edit["edits"] == [{"range": {"start": at, "end": at}, "newText": '\n    """Scale a vector."""'}]
    assert (await ended(client, id))["applied"] is True


async def test_a_body_is_asked_for_where_the_placeholder_was_and_takes_its_place(client, models):
    id = run(client, COMPLETE, 5)
    edit = await applied(client, {"applied": True})
    ((text, offset),) = models.blocks
    assert text == SOURCE.replace("\n    pass\n", "\n    \n") and text[:offset].endswith("def scale(v):\n    ")
    assert edit["edits"] == [
        {
            "range": {"start": {"line": 4, "character": 13}, "end": {"line": 5, "character": 8}},
            "newText": "\n    return v * 2",
        }
    ]
    assert (await ended(client, id))["kind"] == "completeFunction"


@pytest.mark.parametrize("command", [DOCUMENT, COMPLETE])
async def test_text_that_changed_meanwhile_is_left_alone(client, models, command):
    models.pieces = ["Scale."]
    models.gate.clear()
    id = run(client, command, 4)
    await until(lambda: models.asked or models.blocks)
    client.insert(4, 13, "  # typed")
    models.gate.set()
    error = await ended(client, id)
    assert error["code"] == -32801 and "changed meanwhile" in error["message"]
    assert not [m for m in client.messages if m.get("method") == "workspace/applyEdit"]


async def test_a_document_that_was_closed_and_opened_again_is_another(client, models):
    models.pieces = ["Scale."]
    models.gate.clear()
    id = run(client, DOCUMENT, 4)
    await until(lambda: models.asked)
    client.notify("textDocument/didClose", textDocument={"uri": URI})
    client.open(SOURCE)
    models.gate.set()
    assert (await ended(client, id))["code"] == -32801


async def test_an_editor_that_refuses_the_edit_is_believed(client, models):
    models.pieces = ["Scale."]
    id = run(client, DOCUMENT, 4)
    await applied(client, {"applied": False, "failureReason": "the buffer is newer"})
    error = await ended(client, id)
    assert error["code"] == -32801 and "the buffer is newer" in error["message"]


async def test_an_editor_without_versioned_edits_gets_the_edit_and_the_reason(fresh, models):
    start(fresh, {"workspace": {"applyEdit": True}})
    models.pieces = ["Scale."]
    result = await ended(fresh, run(fresh, DOCUMENT, 4))
    assert result["applied"] is False and "version" in result["reason"]
    assert result["edit"]["documentChanges"][0]["edits"][0]["newText"] == '\n    """Scale."""'
    assert fresh.notifications("window/showMessage") == []
    await ended(fresh, run(fresh, DOCUMENT, 4, show=True))
    (shown,) = fresh.notifications("window/showMessage")
    assert shown["type"] == 2 and "nothing was changed" in shown["message"]


@pytest.mark.parametrize("how", ["request", "progress"])
async def test_cancelling_stops_the_model_and_is_answered_once(client, models, how):
    models.pieces = ["One ", "two"]
    models.gate.clear()
    id = run(client, EXPLAIN, 1, token="work")
    await until(lambda: models.asked)
    if how == "request":
        client.notify("$/cancelRequest", id=id)
    else:
        client.notify("window/workDoneProgress/cancel", token="work")
    assert (await ended(client, id))["code"] == -32800
    assert models.closed == 1
    assert client.notifications("$/progress")[-1]["value"]["kind"] == "end"


async def test_without_a_token_the_server_asks_for_one_of_its_own(fresh, models):
    start(fresh, {"window": {"workDoneProgress": True}})
    models.pieces = ["It adds."]
    models.gate.clear()
    id = run(fresh, EXPLAIN, 1)
    (asked,) = [m for m in fresh.messages if m.get("method") == "window/workDoneProgress/create"]
    fresh.send({"id": asked["id"], "result": None})
    models.gate.set()
    await ended(fresh, id)
    kinds = [one["value"]["kind"] for one in fresh.notifications("$/progress")]
    assert kinds[0] == "begin" and kinds[-1] == "end"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (ChatRefusedError("pool_missing", "this gateway has no quality pool"), "this gateway has no quality pool"),
        (GatewayGoneError("the gateway cannot be reached"), "the gateway cannot be reached"),
        (RequestRefusedError(ErrorCode.OVERLOADED, "too busy"), "overloaded: too busy"),
    ],
)
async def test_what_the_gateway_refuses_is_told(client, models, fault, message):
    models.pieces, models.block_answer = [fault], fault
    for command in (EXPLAIN, DOCUMENT, COMPLETE):
        assert await ended(client, run(client, command, 4)) == {"code": -32803, "message": message}
    assert client.notifications("window/showMessage") == [], "the editor shows errors"


async def test_an_editor_that_only_logs_errors_is_told_them_by_message(fresh, models):
    start(fresh, program="helix")
    models.pieces = [GatewayGoneError("the gateway cannot be reached")]
    errors = [await ended(fresh, run(fresh, EXPLAIN, line)) for line in (4, 2)]
    fresh.server.chat.use(None)
    errors.append(await ended(fresh, run(fresh, DOCUMENT, 4)))
    for error, what in zip(errors, ("cannot be reached", "nothing is selected", "not connected"), strict=True):
        assert what in error["message"]
    wanted = [{"type": 2, "message": f"Foretype: {error['message']}"} for error in errors]
    assert fresh.notifications("window/showMessage") == wanted


async def test_where_nothing_can_be_done_the_reason_is_told(fresh, models):
    start(
        fresh, text="x = 1\n\n\ndef f(x): return x\n\n\ndef g():\n    'Doc.'\n    return 1\n\n\nclass A:\n    y = 1\n"
    )
    models.pieces, models.block_answer = [" "], ("", "blank")
    told = {
        (EXPLAIN, 0): "nothing is selected, and the cursor is in no function or class",
        (DOCUMENT, 0): "the cursor is in no function or class",
        (COMPLETE, 0): "the cursor is in no function",
        (COMPLETE, 11): "A is no function; put the cursor into one",
        (COMPLETE, 3): "the function is on one line; there is nothing to complete",
        (COMPLETE, 6): "the model has nothing to add to g: blank",
        (DOCUMENT, 6): "g is documented already; remove that to get another",
        (EXPLAIN, 3): "the model wrote nothing",
    }
    for (command, line), message in told.items():
        assert await ended(fresh, run(fresh, command, line)) == {"code": -32803, "message": message}
    fresh.open("x = 1\n" * 4000)
    error = await ended(fresh, run(fresh, EXPLAIN, 0, 0, {"line": 4000, "character": 0}))
    assert error["message"].startswith("24,000 characters are too many; select at most 16,000")
    error = await ended(fresh, run(fresh, EXPLAIN, 0, textDocument={"uri": "file:///w/never.py"}))
    assert error["message"].endswith("the document was never opened")
    fresh.open("KEY=1\n", uri="file:///w/.env", language="plaintext")
    error = await ended(fresh, run(fresh, EXPLAIN, 0, textDocument={"uri": "file:///w/.env"}))
    assert error["message"].startswith("nothing is sent of this document")
    fresh.server.chat.use(None)
    error = await ended(fresh, run(fresh, EXPLAIN, 3))
    assert error["code"] == -32803 and "not connected" in error["message"]


@pytest.mark.parametrize(
    "arguments",
    [None, [], [1], [{}], [{"textDocument": {"uri": URI}}], [{"textDocument": {"uri": URI}, "range": 5}], [{}, {}]],
)
async def test_arguments_of_another_shape_are_named(client, models, arguments):
    for command in (EXPLAIN, DOCUMENT, COMPLETE):
        id = client.request("workspace/executeCommand", command=command, arguments=arguments)
        error = await ended(client, id)
        assert error["code"] == -32602 and error["message"].startswith(f"{command} takes [{{textDocument, range")


async def test_code_actions_offer_them_to_an_editor_without_a_plugin(client, models):
    def actions(line, end=4, uri=URI, **context):
        span = {"start": {"line": line, "character": 4}, "end": {"line": line, "character": end}}
        context = {"diagnostics": [], **context}
        id = client.request("textDocument/codeAction", textDocument={"uri": uri}, range=span, context=context)
        return client.answers(id)[0]["result"]

    offered = actions(0)
    assert [one["command"]["command"] for one in offered] == [EXPLAIN, DOCUMENT, COMPLETE]
    assert all(one["kind"].startswith("refactor.") and one["title"].startswith("Foretype: ") for one in offered)
    assert actions(1) == [] and actions(0, triggerKind=2) == []  # no lamp at every line
    assert [one["command"]["command"] for one in actions(1, 9)] == [EXPLAIN]
    assert [one["command"]["command"] for one in actions(0, only=["refactor.rewrite"])] == [DOCUMENT, COMPLETE]
    assert len(actions(0, only=[""])) == 3 and actions(0, only=["quickfix", "refactor.rew"]) == []
    assert actions(0, uri="file:///w/never.py") == []
    models.pieces = ["It adds."]
    command = offered[0]["command"]
    await ended(client, client.request("workspace/executeCommand", **command))
    assert client.notifications("window/showMessage") == [{"type": 3, "message": "It adds."}]
