"""A Serve application that passes requests on to a replica: the way through Ray's own proxy, for the bench alone."""

from __future__ import annotations

from typing import Any, Final

import aiohttp
from ray import serve as ray_serve
from starlette.requests import Request
from starlette.responses import StreamingResponse

__all__ = ["PREFIX", "application"]

PREFIX: Final = "/through-ray"
serve: Final[Any] = ray_serve  # it tells half of its types


class _Through:
    def __init__(self, address: str) -> None:
        self._address = address
        self._http = aiohttp.ClientSession()

    async def __call__(self, request: Request) -> StreamingResponse:
        path = request.url.path.removeprefix(PREFIX)
        answer = await self._http.request(
            request.method,
            f"http://{self._address}{path}",
            data=await request.body(),
            headers={"content-type": "application/json", "x-request-id": request.headers.get("x-request-id", "")},
        )
        return StreamingResponse(answer.content.iter_any(), answer.status, media_type=answer.content_type)


def application(args: dict[str, Any]) -> Any:
    """`args`: `address` of the replica."""
    return serve.deployment(_Through, name="through", ray_actor_options={"num_cpus": 0}).bind(**args)
