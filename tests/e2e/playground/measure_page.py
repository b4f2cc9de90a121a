"""Measure the time from opening the playground to its first visible suggestion, in Chromium, with the embedded engine.

    python tests/e2e/playground/measure_page.py [-n 5] [--engine scripted]

The server is warm: it runs and has shown the page once; so is the browser, which opens each page in a profile of its own, with nothing
cached. Visible is the first frame whose page holds ghost text, counted from the start of the navigation.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from e2e.lsp_support import gateway
from e2e.playground.page_support import MISSING, Page


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-n", type=int, default=5)
    parser.add_argument("--engine", choices=["embedded", "scripted"], default="embedded")
    options = parser.parse_args()
    if MISSING:
        sys.exit(f"measure_page: {MISSING}")
    with (
        tempfile.TemporaryDirectory() as name,
        gateway(Path(name), engine=options.engine) as served,
        closing(Page()) as page,
    ):
        first_ms, *taken_ms = [_shown_ms(page, served.port) for _ in range(1 + options.n)]
    figures = {
        "engine": options.engine,
        "first_ms": first_ms,
        "best_ms": min(taken_ms),
        "p50_ms": statistics.median(taken_ms),
        "samples_ms": taken_ms,
        "load": os.getloadavg()[0],
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
    }
    print(json.dumps(figures))


def _shown_ms(page, port):
    page.do("open", url=f"http://127.0.0.1:{port}/playground")
    taken_ms = page.do("shown", selector=".ghost")
    if taken_ms is None:
        raise SystemExit("measure_page: no suggestion came within ten seconds")
    return round(taken_ms, 1)


if __name__ == "__main__":
    main()
