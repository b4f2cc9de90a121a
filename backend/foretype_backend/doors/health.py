"""Doors for operators and clients that start up: `/livez`, `/readyz`, `/healthz`, `/metrics`, `/v1/tokenizers/{digest}`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from foretype_context.prompt.profile import Profile
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from foretype_backend.doors.answers.errors import GatewayError
from foretype_backend.doors.answers.probes import Health, Probe, Unready
from foretype_backend.doors.auth import Gatekeeper, refusal
from foretype_backend.doors.contract import DocumentedAnswer, DocumentedApp
from foretype_backend.doors.readiness import Readiness
from foretype_backend.metrics.metrics import CONTENT_TYPE
from foretype_backend.serving.service import CompletionService

_NO_STORE: Final = {"Cache-Control": "no-store"}


def gateway_version() -> str:
    """Version of the installed distribution, or `0+unknown` in a tree that is not installed."""
    try:
        return version("foretype")
    except PackageNotFoundError:
        return "0+unknown"


class HealthDoor:
    def __init__(
        self,
        service: CompletionService,
        profile: Profile,
        keeper: Gatekeeper,
        *,
        tokenizers: Mapping[str, bytes],
        connections: Callable[[], int],
        metrics: Callable[[], Awaitable[bytes]],
        draining: Callable[[], bool] = lambda: False,
    ) -> None:
        self._service = service
        self._profile = profile
        self._keeper = keeper
        self._tokenizers = dict(tokenizers)
        self._connections = connections
        self._metrics = metrics
        self._draining = draining
        self._version = gateway_version()
        identity = keeper.identity
        self._readiness = Readiness(
            service.engine, draining=draining, admits=lambda: keeper.has_token or identity is None or identity.admits
        )

    def register(self, app: DocumentedApp) -> None:
        ok = DocumentedAnswer("yes", [Probe])
        app.door("GET", "/livez", self.livez, tag="health", guarded=False, answers={200: ok})
        unready = DocumentedAnswer("no, and why in one word", [Unready])
        app.door("GET", "/readyz", self.readyz, tag="health", guarded=False, answers={200: ok, 503: unready})
        health = {200: DocumentedAnswer("it serves", [Health]), 503: DocumentedAnswer("it drains", [Health])}
        app.door("GET", "/healthz", self.healthz, tag="health", guarded=False, answers=health)
        app.door("GET", "/health", self.healthz, tag="health", guarded=False, answers=health)  # llama.cpp's name for it
        text = DocumentedAnswer("the Prometheus text format", media="text/plain")
        app.door("GET", "/metrics", self.metrics, tag="health", answers={200: text})
        file = {200: DocumentedAnswer("the file"), 404: DocumentedAnswer("no such tokenizer here", [GatewayError])}
        app.door("GET", "/v1/tokenizers/{digest}", self.tokenizer, tag="health", answers=file)

    async def livez(self, request: Request) -> Response:
        """Whether this process answers."""
        return JSONResponse({"status": "ok"}, headers=_NO_STORE)

    async def readyz(self, request: Request) -> Response:
        """Whether a completion can be served now."""
        reason = await self._readiness.unready()
        if reason is None:
            return JSONResponse({"status": "ok"}, headers=_NO_STORE)
        return JSONResponse({"status": "unready", "reason": reason}, status_code=503, headers=_NO_STORE)

    async def healthz(self, request: Request) -> Response:
        """What this process serves, for clients and people; 503 while it drains, whatever its engine does.

        Needs no token and tells nothing secret. A right token is confirmed, so that a client can tell its own gateway from
        another process on the same port.
        """
        draining = self._draining()
        engine, scheduler = self._service.engine.statistics(), self._service.statistics()
        return JSONResponse(
            {
                "status": "draining" if draining else "ok",
                "model": self._profile.model,
                "grammar": self._profile.grammar,
                "version": self._version,
                "connections": self._connections(),
                "running": scheduler.running,
                "waiting": scheduler.waiting,
                "engine": engine._asdict(),
                "authorized": self._keeper.authorized(request.headers),
            },
            # A load balancer sends nobody here any more.
            status_code=503 if draining else 200,
        )

    async def metrics(self, request: Request) -> Response:
        """Metrics of all workers in the Prometheus text format."""
        return Response(await self._metrics(), headers={"Content-Type": CONTENT_TYPE})

    async def tokenizer(self, digest: str) -> Response:
        """The tokenizer file, which never changes under its digest."""
        found = self._tokenizers.get(digest)
        if found is None:
            return refusal(
                404, "not_found", "no tokenizer of this digest is served here; take the digest from the profile"
            )
        headers = {"Cache-Control": "private, max-age=31536000, immutable"}
        return Response(found, media_type="application/json", headers=headers)
