"""A directory of replicas that can be told to be difficult: HTTP service discovery with an ETag, and roll-outs beside it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncGenerator
from typing import Any

from backend.model_servers import served
from backend.replica import Replica
from backend.world import until
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route


class ReplicaDirectory:
    """A server on a port of its own.

    Attributes:
        entries: what it announces; `replicas` adds to it.
        says: in place of it, where set: bytes of any kind.
        status: of its answers; 0 takes the request and says nothing.
        token: asked for, where set.
        asked, unchanged: requests for the list, and those of them that were answered with 304.
    """

    def __init__(self) -> None:
        self.entries: dict[str, dict[str, Any]] = {}
        self.rollouts: dict[str, Any] | None = None
        self.says: bytes | None = None
        self.status = 200
        self.token = ""
        self.asked = self.unchanged = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/replicas"

    def announce(self, name: str, replica: Replica | str, **labels: str) -> None:
        target = replica if isinstance(replica, str) else f"127.0.0.1:{replica.port}"
        known = {"pool": "fast", "replica": name, "state": "ready"}
        self.entries[name] = {"targets": [target], "labels": known | labels}

    def state(self, name: str, state: str) -> None:
        self.entries[name]["labels"]["state"] = state

    async def answered(self, count: int = 2) -> None:
        """Returns when it has been asked so often again."""
        wanted = self.asked + count
        await until(lambda: self.asked >= wanted)

    async def _list(self, request: Request) -> Response:
        self.asked += 1
        body = json.dumps(list(self.entries.values())).encode() if self.says is None else self.says
        return await self._answer(request, body)

    async def _rollouts(self, request: Request) -> Response:
        if self.rollouts is None:
            return PlainTextResponse("no", 404)
        return await self._answer(request, json.dumps(self.rollouts).encode())

    async def _answer(self, request: Request, body: bytes) -> Response:
        if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
            return PlainTextResponse("who are you", 401)
        if self.status == 0:
            await asyncio.sleep(60)
        if self.status != 200:
            return PlainTextResponse("told to", self.status)
        tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        if request.headers.get("if-none-match") == tag:
            self.unchanged += 1
            return Response(status_code=304, headers={"ETag": tag})
        # A clock that is a century away is nobody's business.
        headers = {"ETag": tag, "Date": "Mon, 01 Jan 2125 00:00:00 GMT"}
        return Response(body, media_type="application/json", headers=headers)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[ReplicaDirectory]:
        routes = [Route("/replicas", self._list), Route("/rollouts", self._rollouts)]
        async with served(routes, self.port, timeout_graceful_shutdown=0, date_header=False) as self.port:
            yield self
