"""An editor that is gone is noticed, where the system tells of it and where it has to be asked."""

import asyncio
import os
import sys

import pytest
from foretype_lsp.transport import stdio


def refused(pid):
    raise PermissionError(pid)


@pytest.mark.parametrize("told", [True, False])
async def test_an_editor_that_was_killed_is_noticed(told, monkeypatch):
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE)
    if not told:
        monkeypatch.setattr(stdio, "PARENT_POLL_S", 0.01)
        monkeypatch.setattr(os, "pidfd_open", refused, raising=False)
    gone = asyncio.Event()
    watch = asyncio.create_task(stdio.watch_process(process.pid, gone.set))
    await asyncio.sleep(0.05)
    assert not gone.is_set()
    process.kill()
    await process.wait()
    await asyncio.wait_for(gone.wait(), 60)
    await watch


async def test_a_watch_that_is_given_up_leaves_no_descriptor():
    open_before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    watch = asyncio.create_task(stdio.watch_process(os.getpid(), lambda: None))
    await asyncio.sleep(0.05)
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)
    assert sys.platform != "linux" or len(os.listdir("/proc/self/fd")) == open_before
