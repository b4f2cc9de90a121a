"""The one question: asked by a request that every editor knows, once, of who has opted in; an answer is recorded, no answer is none."""

import asyncio

import pytest
from foretype_lsp.options import parse
from foretype_lsp.survey import QUESTION, HowItFeels


class Ready:
    """It is time; keeps what was answered."""

    def __init__(self, *, claims=True):
        self.claims = claims
        self.answers = []

    def is_time(self):
        return True

    def claim(self):
        return self.claims

    def answered(self, answer):
        self.answers.append(answer)


async def asked_of(client):
    """The question, once the editor has it."""
    for _ in range(400):
        found = [one for one in client.messages if one.get("method") == "window/showMessageRequest"]
        if found:
            return found
        await asyncio.sleep(0.01)
    return []


@pytest.mark.parametrize(
    ("result", "answers"),
    [({"title": "Yes"}, ["yes"]), ({"title": "Mostly"}, ["mostly"]), ({"title": "No"}, ["no"]), (None, [])],
)
async def test_what_is_answered_is_recorded_and_nobody_is_asked_twice(client, settled, result, answers):
    feeling, question = Ready(), HowItFeels(client.server.editor)
    question.look(feeling, allowed=True)
    (request,) = await asked_of(client)
    assert request["params"]["message"] == QUESTION
    assert [one["title"] for one in request["params"]["actions"]] == ["Yes", "Mostly", "No"]
    client.send({"id": request["id"], "result": result})
    async with asyncio.timeout(60):
        await question._task
    assert feeling.answers == answers
    question.look(feeling, allowed=True)
    await settled()
    assert len(await asked_of(client)) == 1


async def test_who_has_not_opted_in_or_was_asked_elsewhere_is_not_asked(client):
    question = HowItFeels(client.server.editor)
    question.look(Ready(), allowed=False)
    question.look(None, allowed=True)
    assert question._task is None
    question.look(Ready(claims=False), allowed=True)
    async with asyncio.timeout(60):
        await question._task
    assert "window/showMessageRequest" not in str(client.messages)


async def test_a_server_that_ends_waits_for_no_answer(client):
    question = HowItFeels(client.server.editor)
    question.look(Ready(), allowed=True)
    assert await asked_of(client)
    async with asyncio.timeout(60):
        await question.close()


def test_it_is_off_until_somebody_says_so():
    assert parse({})[0].ask_how_it_feels is False
    assert parse({"askHowItFeels": True})[0].ask_how_it_feels is True
