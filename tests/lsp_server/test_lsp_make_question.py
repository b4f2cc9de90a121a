"""A network that is not made yet: one question, its answer is kept, and yes makes it by `foretype use shipped`."""

import asyncio

import pytest
from foretype_lsp.errors import CommandRefusedError
from foretype_lsp.make_question import ANSWER_NAME, QUESTION, MakeQuestion

REASON = "engine.model: foretype-135m is not made on this machine yet: `foretype models fetch` makes it, once"


class Models:
    """Takes models, or refuses to."""

    def __init__(self, state_dir, refusal=None):
        self.folder = state_dir
        self.refusal = refusal
        self.taken = []

    def state_dir(self):
        if self.folder is None:
            raise CommandRefusedError("this editor asks a team's gateway")
        return self.folder

    async def take(self, name, token):
        self.taken.append(name)
        if self.refusal:
            raise CommandRefusedError(self.refusal)
        return {"model": "foretype-135m"}


async def answered(client, question, title):
    """The question, answered."""
    for _ in range(400):
        found = [one for one in client.messages if one.get("method") == "window/showMessageRequest"]
        if found:
            break
        await asyncio.sleep(0.01)
    (request,) = found
    assert request["params"]["message"] == QUESTION
    assert [one["title"] for one in request["params"]["actions"]] == ["Yes", "No", "Later"]
    client.send({"id": request["id"], "result": None if title is None else {"title": title}})
    async with asyncio.timeout(60):
        await question._task


def shown(client):
    return [one["params"]["message"] for one in client.messages if one.get("method") == "window/showMessage"]


async def test_yes_makes_it_and_says_so(client, tmp_path):
    models = Models(tmp_path)
    question = MakeQuestion(client.server.editor, models)
    question.look(REASON)
    await answered(client, question, "Yes")
    assert models.taken == ["shipped"]
    assert shown(client) == ["Foretype: foretype-135m is here, and serves from now on"]
    assert list(tmp_path.iterdir()) == []


async def test_what_keeps_it_from_being_made_is_told(client, tmp_path):
    question = MakeQuestion(client.server.editor, Models(tmp_path, "the disk is full; make room"))
    question.look(REASON)
    await answered(client, question, "Yes")
    assert shown(client) == ["Foretype: the disk is full; make room"]


@pytest.mark.parametrize(("title", "asked_again"), [("No", False), ("Later", True), (None, True)])
async def test_no_is_kept_for_the_next_session_and_later_is_not(client, tmp_path, title, asked_again):
    models = Models(tmp_path / "state")
    question = MakeQuestion(client.server.editor, models)
    question.look(REASON)
    await answered(client, question, title)
    assert models.taken == []
    assert (tmp_path / "state" / ANSWER_NAME).exists() is not asked_again
    question.look(REASON)
    assert question._task.done(), "nobody is asked twice in a session"
    client.messages.clear()
    next_session = MakeQuestion(client.server.editor, models)
    next_session.look(REASON)
    if asked_again:
        await answered(client, next_session, "Later")
    else:
        async with asyncio.timeout(60):
            await next_session._task
        assert "showMessageRequest" not in str(client.messages)


async def test_another_reason_and_a_team_s_gateway_ask_nobody(client, tmp_path):
    question = MakeQuestion(client.server.editor, Models(tmp_path))
    question.look("the gateway cannot be reached: does it run?")
    assert question._task is None
    question = MakeQuestion(client.server.editor, Models(None))
    question.look(REASON)
    async with asyncio.timeout(60):
        await question._task
    assert "showMessageRequest" not in str(client.messages)


async def test_a_server_that_ends_waits_for_no_answer(client, tmp_path):
    question = MakeQuestion(client.server.editor, Models(tmp_path))
    question.look(REASON)
    async with asyncio.timeout(60):
        await question.close()
