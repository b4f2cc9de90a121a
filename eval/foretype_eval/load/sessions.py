"""`--scenario sessions`: very many open connections, some of which type, and what a silent one costs."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from foretype_wire.errors import GatewayGoneError

from foretype_eval.load.crowd import Crowd
from foretype_eval.load.drive import Progress
from foretype_eval.load.gateway import GatewayUnderLoad

IDLE_S: Final = 60.0


async def sessions(
    crowd: Crowd, found: GatewayUnderLoad, *, rate: float, count: int, idle_s: float, progress: Progress
) -> dict[str, Any]:
    """Connect, be silent, look, and then let some of them type.

    Keys: `sessions`, `connect_s` (until all had their profile), `bytes_per_idle_session` (growth of the gateway's resident
    memory after `idle_s` of silence, by session), and those of an ordinary run at `rate` while all are open.

    Raises:
        GatewayGoneError: connections were refused or lost.
    """
    before = found.resident_bytes()
    loop = asyncio.get_running_loop()
    began = loop.time()
    await crowd.connect(progress)
    connect_s = loop.time() - began
    for second in range(round(idle_s)):
        progress("silence", second, round(idle_s))
        await asyncio.sleep(1)
    after = found.resident_bytes()
    if crowd.recorder.lost_connections:
        raise GatewayGoneError(f"{crowd.recorder.lost_connections} of {count} connections were lost in silence")
    grown = None if before is None or after is None else round((after - before) / count)
    report = await crowd.measure(rate, progress)
    return {
        "sessions": count,
        "connect_s": round(connect_s, 1),
        "idle_s": idle_s,
        "bytes_per_idle_session": grown,
        **report,
    }
