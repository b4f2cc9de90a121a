"""`/metrics` on a port of its own, without a token: for who scrapes inside of a network that the operator chose."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from foretype_backend.config.config import Config
from foretype_backend.config.load import is_loopback
from foretype_backend.config.settings import GatewayConfig
from foretype_backend.doors.auth import Gatekeeper
from foretype_backend.metrics.metrics import CONTENT_TYPE
from foretype_backend.transport.server import running

_log = logging.getLogger("foretype.gateway")


@contextlib.asynccontextmanager
async def serving_metrics(
    metrics: Callable[[], Awaitable[bytes]], config: Config, listener: socket.socket
) -> AsyncGenerator[None]:
    """Answer scrapes while the block runs.

    Args:
        metrics: the text, of all workers.
        listener: bound; closed at the end.
    """
    host = config.metrics.host
    # A page in a browser on this machine could rebind its name to loopback; beyond it, scrapers come under any name.
    keeper = Gatekeeper(Config(gateway=GatewayConfig(host=host, hosts=config.gateway.hosts)))

    async def scrape(request: Request) -> Response:
        if not keeper.listed(request.headers, any_host=not is_loopback(host)):
            return PlainTextResponse("this Host or Origin is not listed; see gateway.hosts\n", status_code=403)
        return Response(await metrics(), headers={"Content-Type": CONTENT_TYPE})

    app = Starlette(routes=[Route("/metrics", scrape, methods=["GET"])])
    async with running(app, config, listener) as (bound, port):
        _log.info("metrics at http://%s:%d/metrics, without a token", f"[{bound}]" if ":" in bound else bound, port)
        yield
