"""The REST interface of Ray's dashboard, which `serve deploy` talks to as well."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

import httpx

from foretype_backend.errors import FleetError

RUNNING: Final = "RUNNING"
FAILED: Final = ("DEPLOY_FAILED", "UNHEALTHY")
_TIMEOUT_S: Final = 30.0
_PAUSES_S: Final = (0.2, 0.4, 0.8, 1.6)
_DEPLOY_S: Final = 600.0
"""The first one starts Serve's controller and waits for it."""


def persistently(ask: Callable[[], httpx.Response]) -> httpx.Response:
    """What it brings, asked up to five times within three seconds: a busy Ray drops a request now and then, or is not ready for it (503).

    Raises:
        httpx.HTTPError: as it does. One that took too long was waited for already, and is not asked again.
    """
    for pause_s in _PAUSES_S:
        try:
            answer = ask()
            if answer.status_code != 503:
                return answer
        except httpx.TimeoutException:
            raise
        except httpx.TransportError:
            pass
        time.sleep(pause_s)
    return ask()


class ServeApi:
    """See the module. Every method raises FleetError where the dashboard does not do what it is asked."""

    def __init__(self, url: str, token: str | None) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._url = url
        # A connection for each request: one that is kept may be closed by the dashboard in the very moment of the next.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._http = httpx.Client(base_url=url, headers=headers, timeout=_TIMEOUT_S, limits=limits, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def answers(self) -> bool:
        try:
            return self._http.get("/api/version", timeout=2.0).status_code == 200
        except httpx.HTTPError:
            return False

    def version(self) -> str:
        return self._ask("GET", "/api/version")["ray_version"]

    def nodes(self) -> list[dict[str, Any]]:
        """Nodes that are alive, with `resources_total` and `labels`."""
        found = self._ask("GET", "/api/v0/nodes")["data"]["result"]["result"]
        return [one for one in found if one["state"] == "ALIVE"]

    def details(self) -> dict[str, Any]:
        """All that Serve knows of its applications."""
        return self._ask("GET", "/api/serve/applications/")

    def config(self) -> dict[str, Any]:
        """What is deployed, as :meth:`deploy` takes it."""
        found = self.details()
        deployed = [
            one["deployed_app_config"]
            for one in found["applications"].values()
            if one["deployed_app_config"] and one["status"] != "DELETING"
        ]
        return {
            "proxy_location": found.get("proxy_location"),
            "http_options": found.get("http_options"),
            "applications": deployed,
        }

    def deploy(self, config: Mapping[str, Any]) -> None:
        self._ask("PUT", "/api/serve/applications/", json=dict(config), timeout=_DEPLOY_S)

    def _ask(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        """Every request may be sent again: a config that is deployed already changes nothing."""
        try:
            answer = persistently(lambda: self._http.request(method, path, **request))
        except httpx.HTTPError as error:
            raise FleetError(f"{self._url} does not answer ({type(error).__name__}); does the fleet run?") from error
        if answer.status_code in (401, 403):
            raise FleetError(f"{self._url} refuses the cluster's token; see cluster.token_file")
        if answer.status_code != 200:
            raise FleetError(f"{self._url} answers {answer.status_code}: {answer.text.strip()[-1000:]}")
        return answer.json() if method == "GET" else {}
