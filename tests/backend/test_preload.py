"""Warm-up from the client's cursor to the replicas: the real client, a gateway, a pool of replicas."""

from pathlib import Path

import pytest
from backend.test_fleet_gateway import LINES, bodies, fleet  # type: ignore[attr-defined]
from backend.world import until
from foretype_backend.engines.port import WARM_PRIORITY
from foretype_backend.fleet.pool import ReplicaPool
from foretype_client.client import ClientOptions, open_client
from foretype_client.policy.switches import Switches
from foretype_client.policy.trigger import PolicyOptions
from foretype_context.syntax.document import Document, Edit
from foretype_wire.messages import Workspace


@pytest.mark.parametrize("preload", [True, False])
async def test_where_the_cursor_rests_the_file_is_warm_before_the_first_key(preload: bool, tmp_path: Path) -> None:
    async with fleet(tmp_path) as (world, replicas):
        options = ClientOptions(
            gateway=world.ws_url,
            cache_dir=tmp_path / "cache",
            workspaces=(Workspace(root="/src/shop", repository="shop"),),
            policy=PolicyOptions(switches=Switches(preload=preload)),
            local=False,
            telemetry=False,
        )
        pool = world.engine
        assert isinstance(pool, ReplicaPool)
        async with open_client(options) as client:
            await client.ready()
            document = Document("file:///src/shop/cart.py", LINES + "\n\n", language="python", path="cart.py")
            at = len(LINES)
            client.flow.document_opened(document.snapshot())
            client.flow.rested(document.snapshot(), at)
            if preload:
                await until(lambda: pool.pool_statistics().warm.begun > 0 and not pool.warming)
                assert {(body["max_tokens"], body["priority"]) for body in bodies(replicas)} == {(1, WARM_PRIORITY)}
            ahead = sum(one.computed_tokens for one in replicas)
            document.apply([Edit(at, at, "total = ")], 2)
            client.flow.document_changed(document.change(client.flow.clock()))
            assert await client.flow.suggest(document.snapshot(), at + len("total = ")) is not None
            first = sum(one.computed_tokens for one in replicas) - ahead
        if preload:
            assert ahead > 400
            assert first <= 32
        else:
            assert ahead == 0
            assert first > 400
