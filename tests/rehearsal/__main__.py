"""`make rehearse` and `make containers`: builds the images that deploy/ names, starts deploy/compose.yaml with podman, and does with it
what a team does, and what happens to a team. Needs root and Debian.

Not started: Grafana (no registry, and no package of Debian's), GPUs, a cluster: manifests are validated by tests/deploy alone.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Final

from rehearsal import images
from rehearsal.engine import Engine
from rehearsal.faults import faults, full
from rehearsal.page import page
from rehearsal.refusals import refusals
from rehearsal.steps import Failed, step, told
from rehearsal.stories import gateway, rolling
from rehearsal.versions import upgrade
from rehearsal.whole import whole

__all__ = ["STORIES", "main"]

STORIES: Final[dict[str, Callable[[Engine], None]]] = {
    "gateway": gateway,
    "rolling": rolling,
    "refusals": refusals,
    "page": page,
    "faults": faults,
    "full": full,
    "upgrade": upgrade,
    "whole": whole,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make rehearse", description=__doc__)
    parser.add_argument("stories", nargs="*", help=f"of {', '.join(STORIES)}; default all")
    parser.add_argument(
        "--folder",
        type=Path,
        default=images.ROOT / "build" / "containers",
        help="keeps images from one run to the next",
    )
    arguments = parser.parse_args()
    chosen: list[str] = arguments.stories or list(STORIES)
    if unknown := set(chosen) - set(STORIES):
        parser.error(f"there is no story {min(unknown)}; there are {', '.join(STORIES)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # nothing of a story is left
    os.umask(0o022)  # what others write into containers is for containers' users
    began = time.monotonic()
    try:
        with closing(Engine(arguments.folder.resolve())) as engine:
            with step("the images of the gateway and its stores are built"):
                images.base(engine)
                with ThreadPoolExecutor() as pool:  # who builds waits for a network half of the time
                    made = pool.submit(images.gateway, engine)
                    for target in ("postgres", "redis"):
                        images.stand_in(engine, target)
                    made.result()
            for name in chosen:
                told(name)
                STORIES[name](engine)
    except Failed as failure:
        told(f"FAILED: {failure}")
        return 1
    told(f"rehearsed {', '.join(chosen)} in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
