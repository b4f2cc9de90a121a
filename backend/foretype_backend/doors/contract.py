"""The gateway's HTTP face as FastAPI, and the OpenAPI document of it.

A route names the types that its door decodes and answers with, and the schemas are made from those by msgspec: nothing is described
twice. Bodies are read by the doors themselves, within their bounds, and decoded once.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from fastapi import Depends, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from foretype_wire.messages import VERSION
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from foretype_backend.doors.answers.errors import GatewayError
from foretype_backend.doors.auth import needed, principal_of, refusal
from foretype_backend.identity.directory import Principal

_REF: Final = "#/components/schemas/{name}"
_TEXT: Final = """What editors, existing clients and operators ask of a Foretype gateway over HTTP.

Suggestions in an editor come over the WebSocket `/v1/stream`, which OpenAPI cannot describe: its frames are in docs/protocol.md. A
wrong `Host` or `Origin` is refused everywhere (403), and so is a body over the limit (413). Where the gateway asks for a credential it
comes as `Authorization: Bearer KEY`; what else a key needs is a scope, which an operation names.
"""
_TAGS: Final = (
    {"name": "completions", "description": "As OpenAI's and llama.cpp's clients ask for them."},
    {"name": "health", "description": "For probes, load balancers, scrapers, and clients that start up."},
    {"name": "operators", "description": "What a gateway is doing and what it holds; needs the scope `admin`."},
    {"name": "playground", "description": "The page in a browser, and what it asks for."},
    {"name": "document", "description": "This document."},
)


async def _asking(request: Request) -> Principal:
    return principal_of(request.scope)


Asks = Annotated[Principal, Depends(_asking)]
"""Who asks: whom the guard let in before the body was read."""


class DocumentedAnswer(NamedTuple):
    """One status of an operation: what it means, its types, and those of the events of a stream, whose `last` is this text."""

    told: str
    types: Sequence[Any] = ()
    events: Sequence[Any] = ()
    last: str = ""
    media: str = "application/json"


_EVERYWHERE: Final = {
    403: DocumentedAnswer("`Host` or `Origin` is not listed, or the credential lacks the scope", [GatewayError]),
    413: DocumentedAnswer("the body is too large", [GatewayError]),
}
_GUARDED: Final = {
    401: DocumentedAnswer("no or wrong credential", [GatewayError]),
    429: DocumentedAnswer("the tenant has as many requests under way as it may", [GatewayError]),
    503: DocumentedAnswer("the gateway has as many requests under way as it may", [GatewayError]),
}


class _DirectRoute(APIRoute):
    """Documented as any other; where a request names its very path it is called without the layers of FastAPI and Starlette."""

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An error that the endpoint raises, an HTTPException too, is the server's to log, and to answer with 500."""
        response = await self.endpoint(Request(scope, receive, send))
        await response(scope, receive, send)


class DocumentedApp(FastAPI):
    """An application that knows the types of its routes."""

    def __init__(self, middleware: Sequence[Middleware]) -> None:
        super().__init__(
            title="Foretype gateway",
            version=str(VERSION),
            description=_TEXT,
            openapi_url=None,  # who may read it is the guard's to say: doors.documentation
            docs_url=None,
            redoc_url=None,
            openapi_tags=list(_TAGS),
            middleware=middleware,
            exception_handlers={HTTPException: _no_door},
        )
        self._types: dict[str, Any] = {}

    def door(
        self,
        method: str,
        path: str,
        endpoint: Callable[..., Awaitable[Response]],
        *,
        tag: str,
        answers: Mapping[int, DocumentedAnswer],
        takes: Any = None,
        guarded: bool = True,
        direct: bool = False,
    ) -> None:
        """Register a route.

        Args:
            endpoint: the first line of its docstring is the summary, the rest the description.
            takes: the type of the JSON body.
            guarded: asks for a credential where the gateway has one.
            direct: for completions, chat and next edits, where FastAPI's way costs more than it gives (decision 0012).
        """
        summary, _, rest = (endpoint.__doc__ or "").partition("\n")
        scope = f"\n\nNeeds the scope `{needed(path).value}`." if guarded else ""
        found = _merged(answers, _EVERYWHERE | (_GUARDED if guarded else {}))
        extra: dict[str, Any] = {"security": [{"key": []}]} if guarded else {}
        if takes is not None:
            extra["requestBody"] = {
                "required": True,
                "content": {"application/json": {"schema": self._schema([takes])}},
            }
        route = (_DirectRoute if direct else APIRoute)(
            path,
            endpoint,
            methods=[method],
            tags=[tag],
            summary=summary.rstrip("."),
            description="\n".join(line.strip() for line in rest.strip().splitlines()) + scope,
            operation_id=endpoint.__name__ if path != "/health" else "llama_health",
            response_class=Response,
            responses={status: self._response(answer) for status, answer in found.items()},
            openapi_extra=extra,
        )
        if method == "GET":
            route.methods = {"GET", "HEAD"}
        self.router.routes.append(route)
        self.openapi_schema = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        known = scope["type"] == "http" and (scope["method"], scope["path"]) in self._direct
        await (self._guarded if known else super().__call__)(scope, receive, send)

    @functools.cached_property
    def _direct(self) -> Mapping[tuple[str, str], _DirectRoute]:
        """Doors that are called directly, by method and path. Asked for when all are there."""
        direct = [route for route in self.routes if isinstance(route, _DirectRoute)]
        return {(method, route.path): route for route in direct for method in route.methods or ()}

    @functools.cached_property
    def _guarded(self) -> ASGIApp:
        """The way to them, past the same guard as to all."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            await self._direct[scope["method"], scope["path"]].answer(scope, receive, send)

        guarded: ASGIApp = answer
        for middleware in reversed(self.user_middleware):
            guarded = middleware.cls(guarded, *middleware.args, **middleware.kwargs)
        return guarded

    def openapi(self) -> dict[str, Any]:
        """The document of the routes that there are."""
        if self.openapi_schema is None:
            self.openapi_schema = self._document()
        return self.openapi_schema

    def _document(self) -> dict[str, Any]:
        routes: list[APIRoute] = []
        for route in self.routes:
            if isinstance(route, APIRoute):
                shown = copy.copy(route)
                shown.methods = (route.methods or set[str]()) - {"HEAD"}
                routes.append(shown)
        document = get_openapi(
            title=self.title, version=self.version, description=self.description, routes=routes, tags=self.openapi_tags
        )
        for operations in document["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)  # FastAPI's own: every parameter here is any text
        _, schemas = msgspec.json.schema_components(list(self._types.values()), ref_template=_REF)
        for name, schema in schemas.items():
            schemas[name] = _list(schema)
        key = {"type": "http", "scheme": "bearer", "description": "a key of this gateway, or a token of its issuer"}
        document["components"] = {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {"key": key},
        }
        return document

    def _response(self, answer: DocumentedAnswer) -> dict[str, Any]:
        content: dict[str, Any] = {}
        if answer.types or answer.media != "application/json":
            content[answer.media] = {"schema": self._schema(answer.types) if answer.types else {"type": "string"}}
        if answer.events:
            data: dict[str, Any] = {
                "type": "string",
                "contentMediaType": "application/json",
                "contentSchema": self._schema(answer.events),
            }
            if answer.last:
                data = {"anyOf": [data, {"const": answer.last}]}
            one = {"type": "object", "properties": {"data": data}, "required": ["data"]}
            content["text/event-stream"] = {"itemSchema": one}
        return {"description": answer.told, **({"content": content} if content else {})}

    def _schema(self, types: Sequence[Any]) -> dict[str, Any]:
        for type_ in types:
            if self._types.setdefault(type_.__name__, type_) is not type_:
                raise ValueError(f"two types of the document are called {type_.__name__}")
        refs = [{"$ref": _REF.format(name=type_.__name__)} for type_ in types]
        return refs[0] if len(refs) == 1 else {"anyOf": refs}


def _merged(own: Mapping[int, DocumentedAnswer], guards: Mapping[int, DocumentedAnswer]) -> dict[int, DocumentedAnswer]:
    """A status that both the door and the guard before it answer is of either's type."""
    found = dict(guards)
    for status, answer in own.items():
        guard = guards.get(status)
        if guard is not None:
            types = list(dict.fromkeys([*answer.types, *guard.types]))
            answer = answer._replace(told=f"{answer.told}; or {guard.told}", types=types)
        found[status] = answer
    return dict(sorted(found.items()))


def _list(schema: dict[str, Any]) -> dict[str, Any]:
    """A struct that bounds a list by having as many fields, as the list that it is; a default of it says nothing."""
    items: list[Any] = schema.get("prefixItems", [])
    if items and all(item == items[0] for item in items):
        one = {key: value for key, value in items[0].items() if key != "default"}
        return {"title": schema["title"], "type": "array", "items": one}
    for field in schema.get("properties", {}).values():
        if isinstance(field.get("default"), list) and not any(field["default"]):
            field["default"] = []
    return schema


async def _no_door(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    response = refusal(error.status_code, "not_found" if error.status_code == 404 else "invalid_request", error.detail)
    response.headers.update(error.headers or {})
    return response
