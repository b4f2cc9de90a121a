"""Ray's dashboard when it is busy: a request that it drops is sent again, for a while."""

import json
import socketserver
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from foretype_backend.errors import FleetError
from foretype_backend.fleet.ray import serve_api
from foretype_backend.fleet.ray.serve_api import ServeApi


class Dashboard(socketserver.ThreadingTCPServer):
    """Does one thing after the other: drops a request, answers with a status and no more, or says its version."""

    daemon_threads = True

    def __init__(self, *does: str) -> None:
        self.does, self.asked = iter(does), list[str]()
        super().__init__(("127.0.0.1", 0), Door)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Door(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Dashboard)
        does, length = next(self.server.does), 0
        self.server.asked.append(self.rfile.readline().decode().rpartition(" ")[0])
        while (line := self.rfile.readline().strip().lower()) != b"":
            length = int(line.partition(b":")[2]) if line.startswith(b"content-length") else length
        self.rfile.read(length)
        if does != "drops":
            body = json.dumps({"ray_version": "2.60.0"})
            said = f"HTTP/1.1 {does} as told\r\nContent-Length: {len(body)}\r\n\r\n{body}"
            self.wfile.write(said.encode())


@pytest.fixture
def dashboard(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dashboard]:
    monkeypatch.setattr(serve_api, "time", SimpleNamespace(sleep=lambda _: None))
    with Dashboard(*request.param) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


@pytest.mark.parametrize("dashboard", [("drops", "503", "drops", "200")], indirect=True)
def test_a_request_that_is_dropped_is_sent_again(dashboard: Dashboard) -> None:
    with ServeApi(dashboard.url, None) as api:
        assert api.version() == "2.60.0"
    assert dashboard.asked == ["GET /api/version"] * 4


@pytest.mark.parametrize("dashboard", [("drops", "200")], indirect=True)
def test_a_config_that_is_dropped_is_deployed_all_the_same(dashboard: Dashboard) -> None:
    with ServeApi(dashboard.url, None) as api:
        api.deploy({"applications": []})
    assert dashboard.asked == ["PUT /api/serve/applications/"] * 2


@pytest.mark.parametrize("dashboard", [("drops",) * 9], indirect=True, ids=["drops"])
def test_one_that_drops_everything_is_not_asked_without_end(dashboard: Dashboard) -> None:
    with ServeApi(dashboard.url, None) as api, pytest.raises(FleetError, match=r"does not answer .*does the fleet run"):
        api.version()
    assert len(dashboard.asked) == 5


@pytest.mark.parametrize("dashboard", [("500",)], indirect=True)
def test_an_answer_that_says_no_is_an_answer(dashboard: Dashboard) -> None:
    with ServeApi(dashboard.url, None) as api, pytest.raises(FleetError, match="answers 500"):
        api.version()
    assert len(dashboard.asked) == 1
