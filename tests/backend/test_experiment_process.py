"""An experiment by its commands alone: a gateway as it is shipped, a client as an editor has it, and nothing started again between."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from backend.test_gateway_process import serving
from foretype_backend.experiments.commands import app
from foretype_backend.identity.commands import keys, tenants
from foretype_client.client import ClientOptions, open_client
from foretype_wire.messages import Profile
from typer.testing import CliRunner

COMMANDS = {"tenants": tenants, "keys": keys, "experiment": app}


async def foretype(command: str, *arguments: str) -> Any:
    done = await asyncio.to_thread(CliRunner().invoke, COMMANDS[command], [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.slow
async def test_a_client_follows_start_and_stop_without_being_started_again(tmp_path: Path) -> None:
    profile = tmp_path / "gateway.toml"
    profile.write_text('[identity]\nenabled = true\nurl = "identity.db"\n[telemetry]\nurl = "events.db"\n')
    store = ("--profile", str(profile))
    await foretype("tenants", "add", "acme", *store)
    key = (await foretype("keys", "create", "--tenant", "acme", *store))["key"]
    await foretype("experiment", "create", "quick", "--set", "debounce_ms=5", "--tenant", "acme", *store)
    arguments = ("--port", "0", "--profile", str(profile), "--state-dir", str(tmp_path / "state"))
    async with serving(*arguments) as (_, url):
        told: asyncio.Queue[Profile] = asyncio.Queue()
        options = ClientOptions(
            gateway=f"{url.replace('http', 'ws', 1)}/v1/stream",
            token=key,
            state_dir=tmp_path / "client",
            cache_dir=tmp_path / "cache",
            local=False,
            telemetry=True,
        )
        async with asyncio.timeout(90), open_client(options) as client:
            client.session.profiles.add(told.put_nowait)
            await client.ready()
            assert (await told.get()).experiment == ""
            await foretype("experiment", "start", "quick", *store)
            inside = await told.get()
            assert inside.experiment == "quick" and inside.block > 400_000  # hours since 1970
            assert inside.debounce_ms == {"treatment": 5.0, "control": None}[inside.variant]
            await client.ready()
            # Which gateway decides, and what it sees, it says within seconds of the start.
            while (found := await foretype("experiment", "status", "quick", *store))["leader"] == "" or (
                found["experiments"][0]["clients"]["followed"] == 0
            ):
                pass
            (shown,) = found["experiments"]
            assert (shown["clients"]["followed"], shown["problem"]) == (1, "")
            await foretype("experiment", "stop", "quick", *store)
            assert (await told.get()).experiment == ""
    verdict = await foretype("experiment", "verdict", "quick", *store)
    assert verdict["verdict"] == "none" and "stopped by" in verdict["reason"]
