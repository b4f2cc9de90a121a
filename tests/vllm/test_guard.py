"""What the tests of vLLM start is gone when they are, however they end."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

STARTS_AND_WAITS = """
import subprocess, sys, time
from vllm_world.guard import Guard
child = subprocess.Popen(["sh", "-c", "sleep 600 & sleep 600"], start_new_session=True)
guard = Guard(child.pid)
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_group_ends_with_who_started_it(how: signal.Signals) -> None:
    command = [sys.executable, "-c", STARTS_AND_WAITS]
    with subprocess.Popen(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        shell = psutil.Process(int(starter.stdout.readline()))
        group = [shell, *shell.children()]
        starter.send_signal(how)
    _, alive = psutil.wait_procs(group, timeout=300)
    assert [one for one in alive if one.status() != psutil.STATUS_ZOMBIE] == []
