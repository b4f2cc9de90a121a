"""Questions about the next edit on one connection of the stream door: from a `next_edit` on the wire to its `edited` and `done`."""

from __future__ import annotations

from typing import Protocol

import msgspec
from foretype_wire.errors import InvalidRequestError
from foretype_wire.gateway_protocol import invalid, is_id
from foretype_wire.messages import Done, Edited, Finish, GatewayMessage, NextEdit, RequestClass

from foretype_backend.doors.stream_answers import LiveRequest, RequestHost, StreamAnswers, answer_of
from foretype_backend.errors import BudgetExceededError
from foretype_backend.serving.completion import Claim
from foretype_backend.serving.next_edits import NO_EDIT_MODEL, NextEditService


class NextEditHost(RequestHost, Protocol):
    """What questions need of their door."""

    next_edits: NextEditService | None


class StreamNextEdits(StreamAnswers[NextEditHost]):
    """See the module."""

    __slots__ = ()

    kind = "next edit"

    def take(self, message: NextEdit) -> None:
        """Take a question in the order of the wire."""
        edits = self._door.next_edits
        if edits is None:
            known = is_id(message.id) and message.id not in self._live
            self._send(invalid(InvalidRequestError("type", NO_EDIT_MODEL), id=message.id if known else None))
            return
        received = edits.service.clock()
        if not self._let_in(message) or not self._has_room(message.id):
            return
        self._supersede(message.supersedes)
        try:
            claim = edits.claim(self._principal, message.question)
        except BudgetExceededError as limited:
            self._send(*answer_of(message.id, limited.outcome))
        else:
            self._begin(message.id, claim, lambda live: self._answer(live, edits, message, claim, received))

    async def _answer(
        self, live: LiveRequest, edits: NextEditService, message: NextEdit, claim: Claim, received: float
    ) -> tuple[GatewayMessage, ...]:
        prompt = await edits.encode(message.question, tenant=self._principal.tenant)
        if live.stopped:
            return (Done(id=message.id, finish=Finish.CANCELLED),)
        deadline = edits.service.deadline(message.deadline_ms)
        asked = self._asked(message, RequestClass.NEXT_EDIT, received=received, deadline=deadline)
        with live.run_by(edits.service):
            taken, outcome = await edits.run(asked, prompt, claim)
        end = answer_of(message.id, msgspec.structs.replace(outcome, rest=None))
        if outcome.finish in (None, Finish.CANCELLED):
            return end
        return Edited(id=message.id, edit=taken.edit, reason=taken.reason), *end
