"""`/v1/next_edit`: one question about the next edit, for clients that have no stream."""

from __future__ import annotations

import itertools
import math
from typing import Annotated

import msgspec
from foretype_context.edit_models.question import EditQuestion
from foretype_wire.errors import InvalidRequestError
from foretype_wire.messages import RequestClass
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from foretype_backend.admission.outcomes import HTTP_STATUS, Reason
from foretype_backend.doors.answers.errors import GatewayError
from foretype_backend.doors.answers.next_edit import NextEditAnswer
from foretype_backend.doors.auth import principal_of
from foretype_backend.doors.contract import DocumentedAnswer, DocumentedApp
from foretype_backend.doors.http import asked_by, completion_errors, read_body, refused
from foretype_backend.doors.openai import error_body, usage_body
from foretype_backend.errors import BudgetExceededError
from foretype_backend.serving.next_edits import NO_EDIT_MODEL, EditOutcome, NextEditService
from foretype_backend.transport.http_protocol import body_channel


class NextEditRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question, as on the stream."""

    question: EditQuestion
    language: str = ""
    deadline_ms: Annotated[float, msgspec.Meta(gt=0)] = 10_000.0


class NextEditDoor:
    """Args: `edits` None answers every request with what is missing."""

    def __init__(self, edits: NextEditService | None, *, max_body_bytes: int) -> None:
        self._edits = edits
        self._max_body_bytes = max_body_bytes
        self._numbers = itertools.count(1)

    def register(self, app: DocumentedApp) -> None:
        app.door(
            "POST",
            "/v1/next_edit",
            self.next_edit,
            tag="completions",
            takes=NextEditRequest,
            answers={200: DocumentedAnswer("one edit of the window, or why there is none", [NextEditAnswer])}
            | completion_errors(GatewayError),
            direct=True,
        )

    async def next_edit(self, request: Request) -> Response:
        """Predict the next edit within a window of lines.

        A field that is not named here is refused. Without a model for next edits the answer is 404.
        """
        edits = self._edits
        if edits is None:
            return JSONResponse(error_body(NO_EDIT_MODEL, "model_missing", None), status_code=404)
        received, principal = edits.service.clock(), principal_of(request.scope)
        try:
            body = await read_body(request, NextEditRequest, max_bytes=self._max_body_bytes)
            _check(body)
            with edits.claim(principal, body.question) as claim:
                prompt = await edits.encode(body.question, tenant=principal.tenant)
                asked = asked_by(
                    request,
                    f"edit{next(self._numbers)}",
                    edits.service,
                    received,
                    RequestClass.NEXT_EDIT,
                    deadline_ms=body.deadline_ms,
                    language=body.language,
                )
                found = await body_channel(request.scope).while_connected(edits.run(asked, prompt, claim))
        except InvalidRequestError as error:
            return JSONResponse(error_body(error.message, "invalid_request", error.field), status_code=400)
        except BudgetExceededError as limited:
            return refused(limited.outcome, error_body)
        return Response(status_code=HTTP_STATUS[Reason.DISCONNECTED]) if found is None else _answered(found)


def _answered(found: EditOutcome) -> Response:
    taken, outcome = found
    if outcome.finish is None:
        return refused(outcome, error_body)
    edit = None if taken.edit is None else msgspec.structs.asdict(taken.edit)
    return JSONResponse({"edit": edit, "reason": taken.reason, "usage": usage_body(outcome)})


def _check(body: NextEditRequest) -> None:
    if not math.isfinite(body.deadline_ms):
        raise InvalidRequestError("deadline_ms", "must be a number of milliseconds above zero")
    wrong = body.question.wrong()
    if wrong is not None:
        raise InvalidRequestError(f"question.{wrong[0]}", wrong[1])
