"""Two real gateways, one of them farther away: the nearest is used, and while somebody types it is lost."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from e2e.lsp_support import SOURCE, GatewayProcess, editor
from e2e.way import Way
from foretype_client.client import Client, ClientOptions, open_client
from foretype_context.syntax.document import Document
from foretype_wire.errors import GatewayGoneError, RequestRefusedError

LIMIT_S = 300.0
FAR_S = 0.03
"""What the way to the far one takes, each way, when it is measured."""
CLEARLY_FAR_S = 0.3
"""... when it must not be taken for the near one: that one is late, too, on a busy machine."""
AIM_S = 1.5
"""Printed, since it is the machine's matter: asserted is that the other one suggests."""


@contextmanager
def two_gateways(folder: Path) -> Iterator[tuple[GatewayProcess, GatewayProcess]]:
    for name in ("near", "far"):
        (folder / name).mkdir()
    with closing(GatewayProcess(folder / "near")) as near, closing(GatewayProcess(folder / "far")) as far:
        yield near, far


async def typed(client: Client, until: str) -> float:
    """Type a key each 50 ms and ask after each; how long until one was answered by this gateway, seconds."""
    begun_s = time.monotonic()
    for at in range(1_000):
        document = Document("file:///w/a.py", f"def f(a):\n    x{at} = ", path="a.py", language="python")
        snapshot = document.snapshot()
        with suppress(GatewayGoneError, RequestRefusedError):
            async for text in client.stream(snapshot, len(snapshot.text)):
                if text and client.session.endpoint.url == until:
                    return time.monotonic() - begun_s
        await asyncio.sleep(0.05)
    raise AssertionError(f"never from {until}: {client.session.statistics()}")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_the_nearest_is_used_and_when_it_is_lost_mid_typing_the_other_one_suggests(
    tmp_path: Path, how: str
) -> None:
    with two_gateways(tmp_path) as (one, other):
        async with Way(one).open() as near, Way(other, CLEARLY_FAR_S).open() as far:
            options = ClientOptions(gateway=f"{far.url} {near.url}", state_dir=tmp_path, cache_dir=tmp_path / "cache")
            async with open_client(options) as client:
                await client.ready()
                await typed(client, near.url)
                far.delay_s = FAR_S
                assert client.regions is not None
                standings = {standing.url: standing for standing in await client.regions.measure()}
                assert standings[near.url].chosen and not standings[far.url].chosen
                assert (standings[far.url].rtt_ms or 0) >= 2 * FAR_S * 1e3
                typing = asyncio.create_task(typed(client, far.url))
                await asyncio.sleep(0.3)
                lost_s = time.monotonic()
                if how == "killed":
                    one.kill()
                else:
                    near.frozen = True
                await typing
                took_s = time.monotonic() - lost_s
                print(f"region {how}: first suggestion from the other one after {took_s:.2f} s (aim {AIM_S} s)")
                told = {standing.url: standing for standing in client.regions.standings}
                assert told[far.url].chosen and told[near.url].healthy is False


@pytest.mark.slow
async def test_an_editor_is_told_which_gateway_it_has_and_doctor_says_how_far_each_is(tmp_path: Path) -> None:
    with two_gateways(tmp_path) as (one, other):
        async with Way(one).open() as near, Way(other, CLEARLY_FAR_S).open() as far:
            both = f"{far.url} {near.url}"
            async with editor(tmp_path, options={"gatewayUrl": both, "stateDir": str(tmp_path / "s")}) as it:
                assert (await it.status())["gateway"] == near.url
                it.open(SOURCE)
                one.kill()
                async with asyncio.timeout(LIMIT_S):
                    while it.statuses[-1]["gateway"] != far.url or it.statuses[-1]["state"] != "ready":
                        it.arrived.clear()
                        await it.arrived.wait()
            process = await asyncio.create_subprocess_exec(
                *(str(Path(sys.executable).with_name("foretype")), "doctor", "--json", "--gateway", both),
                *("--state-dir", str(tmp_path / "s")),
                stdout=subprocess.PIPE,
            )
            out, _ = await process.communicate()
            findings = {finding["name"]: finding for finding in json.loads(out)["findings"]}
            assert findings["gateways"]["status"] == "warn"
            assert f"{far.url} " in findings["gateways"]["detail"] and "ms, in use" in findings["gateways"]["detail"]
            assert f"{near.url} cannot be reached" in findings["gateways"]["detail"]
            assert "remove them from --gateway" in findings["gateways"]["remedy"]
