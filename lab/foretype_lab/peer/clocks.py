"""The two clocks of a comparison: virtual between requests, or the clock on the wall."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from foretype_eval.replay.virtual import VirtualLoop


class WallLoop(asyncio.SelectorEventLoop):
    """`asyncio` loop on real seconds, with the interface of a virtual one: real work takes its time."""

    held: Final = staticmethod(contextlib.nullcontext[None])


Clock = VirtualLoop | WallLoop
