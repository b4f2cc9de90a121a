"""A model behind the method: asked last, where eagerness is high, and taken only where what it says can be right."""

import asyncio
from types import SimpleNamespace

import pytest
from foretype_context.edit_models.question import EditQuestion, EditWindow, WindowEdit
from foretype_context.syntax.document import Document
from foretype_lsp.next_edit.model import GatewayModel
from foretype_wire.errors import GatewayGoneError, RequestRefusedError
from foretype_wire.messages import ErrorCode
from lsp_server.next_edit_support import Typist

TEXT = "a = 1\nb = 2\n\n\ndef f(x):\n    return x\n"
WINDOW = EditWindow(lines_above=3, lines_below=3)
HIGH = {"nextEdit": {"eagerness": "high"}}


class Scripted:
    """Says what the test gives; None waits for ever."""

    def __init__(self, client, old="", new="", *, wanted=WINDOW, answers=True):
        self.old, self.new, self.wanted, self.answers = old, new, wanted, answers
        self.questions, self.asked, self.stopped = [], asyncio.Event(), asyncio.Event()
        client.server.next_edits.use(self)

    async def ask(self, document, question):
        self.questions.append(question)
        self.asked.set()
        try:
            if not self.answers:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.stopped.set()
            raise
        at = question.window.find(self.old)
        return None if at < 0 else WindowEdit(start=at, end=at + len(self.old), text=self.new)


async def typing(client, options=HIGH):
    """Somebody who has done something since the model was asked for the first time."""
    client.initialize(options=options)
    typist = Typist(client, TEXT)
    typist.replace(0, 5, 5, "0")
    await typist.next(3, 0)
    typist.replace(0, 6, 6, "0")
    return typist


async def test_it_is_asked_with_a_window_and_what_was_done_and_its_edit_is_one_of_the_text(fresh):
    model = Scripted(fresh, "b = 2", "b = 200")
    typist = await typing(fresh)
    edit = await typist.next(3, 0)
    assert (edit["text"], edit["data"]["replaces"], edit["data"]["evidence"]) == ("b = 200", "b = 2", "model")
    assert edit["range"]["start"] == {"line": 1, "character": 0}
    question = model.questions[-1]
    assert (question.path, question.first_line) == ("a.py", 0)
    assert question.window[question.cursor :].startswith("\ndef f")
    (done,) = question.edits
    assert done.path == "a.py" and (done.old[:6], done.new[:7]) == ("a = 10", "a = 100")


async def test_the_rules_go_first(fresh):
    model = Scripted(fresh, "b = 2", "b = 200")
    fresh.initialize(options=HIGH)
    typist = Typist(fresh, TEXT)
    typist.replace(4, 6, 7, "value")
    assert (await typist.next(3, 0))["data"]["evidence"] == "declaration"
    assert model.questions == []


@pytest.mark.parametrize("eagerness", ["low", "medium"])
async def test_it_is_asked_where_eagerness_is_high_alone(fresh, eagerness):
    model = Scripted(fresh, "b = 2", "b = 200")
    typist = await typing(fresh, {"nextEdit": {"eagerness": eagerness}})
    assert await typist.next(3, 0) is None
    assert model.questions == []


async def test_a_gateway_without_one_is_asked_nothing(fresh):
    model = Scripted(fresh, "b = 2", "b = 200", wanted=None)
    typist = await typing(fresh)
    assert await typist.next(3, 0) is None
    assert model.questions == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("b = 2", "b = ("),  # does not parse
        ("b = 2", "b = 2"),  # nothing
        ("a = 100", "a = 10"),  # takes back what was typed
    ],
)
async def test_what_cannot_be_wanted_is_dropped(fresh, old, new):
    model = Scripted(fresh, old, new)
    typist = await typing(fresh)
    assert await typist.next(3, 0) is None
    assert model.questions


async def test_a_change_stops_the_model(fresh):
    model = Scripted(fresh, answers=False)
    typist = await typing(fresh)
    model.asked.clear()
    id = typist.ask(3, 0)
    async with asyncio.timeout(60):
        await model.asked.wait()
    typist.replace(1, 5, 5, "0")
    assert await typist.answer(id) is None
    async with asyncio.timeout(60):
        await model.stopped.wait()


async def test_who_cancels_stops_the_model(fresh):
    model = Scripted(fresh, answers=False)
    typist = await typing(fresh)
    model.asked.clear()
    id = typist.ask(3, 0)
    async with asyncio.timeout(60):
        await model.asked.wait()
    fresh.notify("$/cancelRequest", id=id)
    async with asyncio.timeout(60):
        await model.stopped.wait()


class Session:
    """A gateway whose profile names a model, or does not."""

    def __init__(self, wanted, answer, *, connected=True):
        self.profile, self.connected, self.answer = SimpleNamespace(next_edit=wanted), connected, answer
        self.calls = []

    async def next_edit(self, call):
        self.calls.append(call)
        if isinstance(self.answer, Exception):
            raise self.answer
        return SimpleNamespace(edit=self.answer)


def test_a_model_is_there_where_the_gateway_is_and_its_profile_names_one():
    assert GatewayModel(Session(WINDOW, None)).wanted is WINDOW
    assert GatewayModel(Session(None, None)).wanted is None
    assert GatewayModel(Session(WINDOW, None, connected=False)).wanted is None


EDIT = WindowEdit(start=0, end=1, text="y")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (EDIT, EDIT),
        (None, None),
        (RequestRefusedError(ErrorCode.OVERLOADED, "busy"), None),
        (GatewayGoneError("gone"), None),
    ],
)
async def test_the_question_is_of_one_version_and_no_answer_is_silence(answer, said):
    session = Session(WINDOW, answer)
    document = Document("file:///w/a.py", "x\n", language="python", version=7)
    question = EditQuestion(window="x\n", cursor=0)
    assert await GatewayModel(session).ask(document, question) == said
    (call,) = session.calls
    assert (call.document, call.version, call.language, call.question) == (document.uri, 7, "python", question)
