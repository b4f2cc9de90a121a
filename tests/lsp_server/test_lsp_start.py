"""What a start of the language server imports, and what it does not wait for."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from foretype_client.client import ClientOptions, open_client
from foretype_client.errors import GatewayStartError
from foretype_client.ports import Endpoint
from foretype_lsp.gateway_client import GatewayClient
from foretype_lsp.options import Options
from foretype_lsp.server import Server
from imports import imported

STARTED = """
from foretype_client.commands import cli
from foretype_lsp import cli as server
from foretype_lsp.transport.protocol_types import import_types
import_types()
import foretype_lsp.run, foretype_lsp.server, foretype_lsp.next_edit.model
import foretype_client.client, foretype_client.chat, foretype_client.private_gateway.starting
"""


def test_a_language_server_with_a_private_gateway_imports_no_client_of_http_and_no_console() -> None:
    assert imported(STARTED, "httpx", "httpcore", "rich.console", "pygments", "faiss", "opentelemetry") == []


async def test_the_private_gateway_is_begun_before_the_client_is_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And it is that one which the first connection is made to, not looked for once more."""
    order: list[str] = []
    found = Endpoint("ws://127.0.0.1:9/v1/stream", "t")

    async def ensure(state_dir: Path | None, **options: Any) -> Endpoint:
        order.append(f"gateway in {state_dir}, {options['model']}")
        return found

    class Client:
        def open_client(self, options: ClientOptions, **more: Any) -> Any:
            order.append("client")
            opened.set_result(options)
            raise asyncio.CancelledError

    def imported(name: str) -> Any:
        if name.endswith("starting"):
            return type("Starting", (), {"ensure_gateway": staticmethod(ensure)})
        order.append("import")
        return Client()

    opened: asyncio.Future[ClientOptions] = asyncio.get_running_loop().create_future()
    monkeypatch.setattr("foretype_lsp.gateway_client.import_module", imported)
    server = Server({"stateDir": str(tmp_path), "model": "/m.gguf", "index": {"enable": False}})
    server.settings.take({})
    server.editor.initialized.set()
    running = asyncio.create_task(GatewayClient(server).run())
    begun = (await opened).begun
    assert begun is not None
    assert await begun is found
    await asyncio.gather(running, return_exceptions=True)
    assert sorted(order) == ["client", f"gateway in {tmp_path}, /m.gguf", "import"]
    assert order[-1] == "client"


async def test_nothing_is_begun_where_the_gateway_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def imported(name: str) -> Any:
        assert not name.endswith("starting")
        raise asyncio.CancelledError

    monkeypatch.setattr("foretype_lsp.gateway_client.import_module", imported)
    server = Server({"gatewayUrl": "ws://127.0.0.1:9/v1/stream"})
    server.settings.take({})
    server.editor.initialized.set()
    with pytest.raises(asyncio.CancelledError):
        await GatewayClient(server).run()
    assert server.settings.options != Options()


async def test_what_was_begun_is_waited_for_once_and_its_failure_told_as_any_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened, looked = asyncio.Event(), asyncio.Event()

    async def ensure(state_dir: Path | None, **options: Any) -> Endpoint:
        await opened.wait()
        told.append(client.session.statistics().last_error)  # until then nothing else has failed
        looked.set()
        raise GatewayStartError("the second look")

    async def fails() -> Endpoint:
        raise GatewayStartError("what was begun ended at once")

    monkeypatch.setattr("foretype_client.client.ensure_gateway", ensure)
    told: list[str] = []
    async with open_client(ClientOptions(state_dir=tmp_path, begun=fails())) as client:
        opened.set()
        async with asyncio.timeout(60):
            await looked.wait()
    assert "what was begun" in told[0]
