"""The door `/playground`: the page, the login, and prompts for the text in it. Suggestions come over `/v1/stream`."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from importlib.resources import files
from typing import Annotated, Any, Final

import msgspec
from foretype_context.errors import ProfileError
from foretype_context.finish.post_processing import Finished
from foretype_context.prompt.assemble import Assembler
from foretype_context.prompt.plan import Plan
from foretype_context.prompt.profile import Profile
from foretype_context.tokens.tokenizer import Tokenizer
from foretype_wire.errors import InvalidRequestError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from foretype_backend.doors.answers.errors import PageError
from foretype_backend.doors.answers.playground import FinishedText, Login, LoginCode, OfferedEdit, PlannedPrompt
from foretype_backend.doors.auth import Gatekeeper
from foretype_backend.doors.contract import Asks, DocumentedAnswer, DocumentedApp
from foretype_backend.doors.http import read_body
from foretype_backend.identity.directory import Principal
from foretype_backend.identity.logins import CODE_S, cookie_name
from foretype_backend.playground.next_edits import Offered, PageEditRequest, next_edit
from foretype_backend.playground.plans import MAX_TEXT_CHARS, Pages

_MAX_BODY_BYTES: Final = 8 * MAX_TEXT_CHARS
_MAX_LOGIN_BYTES: Final = 32_768
"""Of a login: a bearer token of an issuer that lists groups is some kilobytes long."""
_STATIC: Final = {
    "index.html": "text/html; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
}
# CodeMirror writes its own style sheet into the page; everything else comes from this gateway alone.
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self';"
    " img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}

_Name = Annotated[str, msgspec.Meta(min_length=8, max_length=64, pattern="^[A-Za-z0-9_-]+$")]
_Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT_CHARS)]
_Short = Annotated[str, msgspec.Meta(max_length=256)]


class LoginRequest(msgspec.Struct):
    """Either of them; a code wins."""

    token: str = ""
    code: _Short = ""


class PlanRequest(msgspec.Struct):
    """The text left and right of the cursor; `page` is a name that the page made up."""

    page: _Name
    before: _Text
    after: _Text = ""
    path: _Short = "playground.py"
    language: _Short = ""


class FinishRequest(msgspec.Struct):
    """All that was generated for a version of the page's text; `final` when the model ended by itself."""

    page: _Name
    version: int
    text: _Text
    final: bool = True


class PlaygroundDoor:
    """Serves the playground.

    Args:
        profile: what clients of a tenant are told now.
    """

    def __init__(self, tokenizer: Tokenizer, profile: Callable[[Principal], Profile], keeper: Gatekeeper) -> None:
        self._tokenizer = tokenizer
        self._profile = profile
        self._keeper = keeper
        self._pages = Pages()
        self._assembler: Assembler | None = None
        self._turn, self._edits_turn = asyncio.Lock(), asyncio.Lock()
        static = files("foretype_backend.playground") / "static"
        self._static = {name: (static / name).read_bytes() for name in _STATIC}

    def register(self, app: DocumentedApp) -> None:
        door = functools.partial(app.door, tag="playground")
        wrong = {400: DocumentedAnswer("a field is wrong, and which", [PageError])}
        for path, endpoint, media in (
            ("/playground", self.page, "text/html"),
            ("/playground/app.js", self.page_script, "text/javascript"),
            ("/playground/style.css", self.page_style, "text/css"),
        ):
            door("GET", path, endpoint, guarded=False, answers={200: DocumentedAnswer("the file", media=media)})
        door("POST", "/playground/code", self.code, answers={200: DocumentedAnswer("the code", [LoginCode]), **wrong})
        answers = {
            200: DocumentedAnswer("logged in", [Login]),
            401: DocumentedAnswer("not this gateway's", [PageError]),
            **wrong,
        }
        door("POST", "/playground/login", self.login, guarded=False, takes=LoginRequest, answers=answers)
        answers = {
            200: DocumentedAnswer("the prompt", [PlannedPrompt]),
            503: DocumentedAnswer("no prompt for this model", [PageError]),
        }
        door("POST", "/playground/plan", self.plan, takes=PlanRequest, answers=answers | wrong)
        answers = {200: DocumentedAnswer("the text", [FinishedText])}
        door("POST", "/playground/finish", self.finish, takes=FinishRequest, answers=answers | wrong)
        answers = {200: DocumentedAnswer("the edit, or none", [OfferedEdit])}
        door("POST", "/playground/next_edit", self.beyond, takes=PageEditRequest, answers=answers | wrong)

    async def page(self) -> Response:
        """The playground: it holds nothing of anybody's and is served without a credential."""
        return self._part("index.html")

    async def page_script(self) -> Response:
        """What the page runs."""
        return self._part("app.js")

    async def page_style(self) -> Response:
        """What the page looks like."""
        return self._part("style.css")

    def _part(self, name: str) -> Response:
        return Response(self._static[name], media_type=_STATIC[name], headers=_HEADERS)

    async def code(self, request: Request) -> Response:
        """What opens a page once, for a minute, in place of the token that this request carries."""
        token = request.headers.get("authorization", "").partition(" ")[2].strip()
        if not token:  # a browser has no need of one, and a gateway that asks for no credential neither
            return _error(400, "invalid_request", "send the token as `Authorization: Bearer TOKEN`", "authorization")
        return _json({"code": self._keeper.logins.code(token), "seconds": CODE_S})

    async def login(self, request: Request) -> Response:
        """Change a token or a code for the two halves of a login: a cookie, and what the page keeps."""
        try:
            body = await read_body(request, LoginRequest, max_bytes=_MAX_LOGIN_BYTES)
        except InvalidRequestError as error:
            return _invalid(error)
        logins, token = self._keeper.logins, body.token
        if body.code:
            token = logins.redeem(body.code)
            if token is None:
                return _error(401, "invalid_api_key", "this code was used, or is older than a minute", "code")
        if not self._keeper.authorized({"authorization": f"Bearer {token}"}):
            return _error(401, "invalid_api_key", "this token is not the gateway's", "token")
        login = logins.open(token)
        response = _json({"page": login.page})
        # What a browser says of itself: TLS may end before this gateway.
        secure = request.headers.get("origin", "").startswith("https://") or request.url.scheme == "https"
        response.set_cookie(
            cookie_name(request.headers.get("host", ""), secure=secure),
            login.cookie,
            httponly=True,
            samesite="strict",
            secure=secure,
            path="/",
        )
        return response

    async def plan(self, request: Request, principal: Asks) -> Response:
        """The prompt for a text and a cursor, as a `complete` of the stream and as what the page shows of it."""
        try:
            body = await read_body(request, PlanRequest, max_bytes=_MAX_BODY_BYTES)
        except InvalidRequestError as error:
            return _invalid(error)
        started = time.perf_counter()
        async with self._turn:  # off the loop: a first parse takes milliseconds
            try:
                plan, version = await asyncio.to_thread(
                    self._planned,
                    self._profile(principal),
                    _name(principal, body.page),
                    body,
                )
            except ProfileError as error:
                return _error(503, "engine_unavailable", f"no prompt can be made for this model: {error}", None)
        answer = _as_object(plan, version, body)
        answer["timings_ms"]["request"] = (time.perf_counter() - started) * 1e3
        return _json(answer)

    async def finish(self, request: Request, principal: Asks) -> Response:
        """What of a generated text an editor would show: nothing, once the page's text is another one."""
        try:
            body = await read_body(request, FinishRequest, max_bytes=_MAX_BODY_BYTES)
        except InvalidRequestError as error:
            return _invalid(error)
        async with self._turn:
            finished = self._pages.finish(_name(principal, body.page), body.version, body.text, final=body.final)
        if finished is None:  # somebody typed on meanwhile, which is no fault: browsers put those into their console
            finished = Finished("", 0, "superseded")
        return _json({"text": finished.text, "replaces": finished.replaces, "reason": finished.reason})

    async def beyond(self, request: Request) -> Response:
        """The next edit beyond the cursor of a text, by rules alone; the text and what happened to it are not kept."""
        try:
            body = await read_body(request, PageEditRequest, max_bytes=_MAX_BODY_BYTES)
            async with self._edits_turn:  # off the loop: it parses
                offered = await asyncio.to_thread(next_edit, body)
        except InvalidRequestError as error:
            return _invalid(error)
        return _json(_as_offer(offered))

    def _planned(self, profile: Profile, name: str, body: PlanRequest) -> tuple[Plan, int]:
        if self._assembler is None or self._assembler.profile is not profile:
            self._assembler = Assembler(self._tokenizer, profile)
        return self._pages.plan(
            self._assembler,
            name,
            body.before,
            body.after,
            path=body.path,
            language=body.language,
            now=time.monotonic(),
        )


def _name(principal: Principal, page: str) -> str:
    return f"{principal.credential}/{page}"


def _as_object(plan: Plan, version: int, body: PlanRequest) -> dict[str, Any]:
    segments = [placed.segment for placed in plan.segments]
    return {
        "complete": {
            "document": f"playground:///{body.path}",
            "version": version,
            "language": body.language,
            "segments": [
                {"kind": one.kind, "scope": one.scope, "source": one.source, "text": one.text} for one in segments
            ],
            "max_tokens": plan.max_tokens,
            "stop": plan.stop,
            "prompt_tokens": plan.prompt_tokens,
        },
        "ranges": [[placed.start, placed.end] for placed in plan.segments],
        "layout": plan.layout,
        "kind": plan.kind,
        "budget_tokens": plan.budget_tokens,
        "healed": plan.healed,
        "dropped": [{"kind": one.kind, "tokens": one.tokens, "reason": one.reason} for one in plan.dropped],
        "frozen": len(plan.frozen_spans),
        "timings_ms": dict(plan.timings_ms),
    }


def _as_offer(offered: Offered) -> dict[str, Any]:
    found, wait_ms = offered.found, offered.wait_s * 1e3
    if found is None:
        return {"edit": None, "wait_ms": wait_ms}
    edit = {**found.edit._asdict(), "evidence": found.evidence, "left": found.left, "jump_only": found.jump_only}
    return {"edit": edit, "wait_ms": wait_ms}


def _json(answer: object) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json", headers={"Cache-Control": "no-store"})


def _invalid(error: InvalidRequestError) -> Response:
    return _error(400, "invalid_request", str(error), error.field)


def _error(status: int, code: str, message: str, field: str | None) -> Response:
    return JSONResponse({"error": {"code": code, "message": message, "field": field}}, status_code=status)
