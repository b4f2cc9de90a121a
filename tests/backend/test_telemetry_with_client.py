"""A real client and a real gateway: what is typed, shown and accepted stands in the store, exactly once."""

import asyncio
import os
import time
from pathlib import Path

from backend.world import gateway, until
from foretype_backend.config.settings import TelemetryConfig
from foretype_backend.telemetry.sink import TelemetrySink
from foretype_backend.telemetry.store import Store
from foretype_client.client import ClientOptions, open_client
from foretype_client.telemetry.spool import Spool, user_in
from foretype_context.syntax.document import Document, Edit
from imports import imported


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


async def test_a_session_at_the_editor_arrives_once_and_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    state = tmp_path / "client"
    telemetry = TelemetrySink(TelemetryConfig(), tmp_path / "gateway", clock=time.monotonic, wall_ms=wall_ms)
    async with gateway(feedback=telemetry) as world:
        options = ClientOptions(
            gateway=world.ws_url, state_dir=state, cache_dir=tmp_path / "cache", local=False, telemetry=True
        )
        async with open_client(options) as client:
            await client.ready()
            document = Document((tmp_path / "a.py").as_uri(), "def f(x):\n    \n", language="python")
            client.flow.document_opened(document.snapshot())
            document.apply([Edit(14, 14, "y = ")], 1)
            client.flow.document_changed(document.change(client.flow.clock()))
            suggestion = await client.flow.suggest(document.snapshot(), 18)
            assert suggestion is not None
            client.flow.accepted(suggestion.id)
            document.apply([Edit(18, 18 + suggestion.replaces, suggestion.text)], 2)
            client.flow.document_changed(document.change(client.flow.clock()))
        # The client ended before its batch was full: the batch waits on disk for the next one.
        spool = Spool(state / "telemetry" / "spool")
        assert len(spool.names()) == 1
        for path in spool.directory.iterdir():
            os.utime(path, (1.0, 1.0))
        async with open_client(options) as client:
            await client.ready()
            await until(lambda: not spool.names())
    store = await Store.open(str(tmp_path / "gateway" / "events.db"))
    async with store.transaction() as connection:
        found = await connection.exec_driver_sql("SELECT event, user_id, language FROM events ORDER BY seq")
        got = [tuple(row) for row in found]
    await store.close()
    await telemetry.close()
    user = user_in(state / "telemetry")
    assert sorted(got) == sorted(
        (kind, user, "python") for kind in ("opportunity", "request", "result", "display", "accept")
    )


async def test_without_telemetry_nothing_is_written_and_nothing_is_sent(tmp_path: Path) -> None:
    async with gateway() as world:
        options = ClientOptions(gateway=world.ws_url, state_dir=tmp_path / "s", cache_dir=tmp_path / "c", local=False)
        async with open_client(options) as client:
            await client.ready()
            await asyncio.sleep(0)
        assert not (tmp_path / "s").exists()


def test_the_clients_side_needs_nothing_of_the_stores() -> None:
    ours = "import foretype_lsp.server, foretype_client.client, foretype_client.commands.privacy"
    assert imported(ours, "sqlalchemy", "alembic", "obstore", "cryptography", "foretype_backend") == []
