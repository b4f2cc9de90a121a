"""Processes that the laboratory starts: where its own modules are found, for it need not be installed, and ports that are free."""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, cast

from foretype_lab.errors import LabError

_LAB: Final = str(Path(__file__).parents[1])
_PORTS: Final = range(20_000, 32_000)
"""Below those of connections that go out (32,768 and up on Linux, 49,152 and up elsewhere)."""


def environment() -> dict[str, str]:
    """This process's environment, in which `python -P -m foretype_lab.…` finds the laboratory."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([_LAB, *filter(None, [os.environ.get("PYTHONPATH")])])}


def measured_apart(module: str, step: str, *arguments: object) -> dict[str, Any]:
    """What `python -m module step …` prints on its last line, as JSON. Raises LabError: it failed."""
    command = [sys.executable, "-P", "-m", module, step, *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    if ran.returncode:
        raise LabError(f"step {step} ended with status {ran.returncode}: {ran.stderr.strip()[-500:]}")
    return cast("dict[str, Any]", json.loads(ran.stdout.splitlines()[-1]))


def free_ports(count: int) -> list[int]:
    """On loopback, each another, and of none that the system gives away by itself: nobody gets one by chance before it is bound."""
    found: list[int] = []
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        if len(found) == count:
            break
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            found.append(port)
    return found
