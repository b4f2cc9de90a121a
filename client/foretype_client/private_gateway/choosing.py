"""Choosing the private gateway's model from an editor: `foretype use` in a process of its own.

It downloads, hashes and starts gateways, which a process that answers keys should not; and it is the same command as in a terminal.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from foretype_client.errors import ModelChoiceError

_COMMAND: Final = (sys.executable, "-P", "-m", "foretype_models.use", "--json")
_HOME: Final = os.path.expanduser("~")
_LINE_BYTES: Final = 1 << 20
_NOT_INSTALLED: Final = "choosing a model needs `pip install 'foretype[local]'` where the language server is installed"

Told = Callable[[Mapping[str, Any]], None]


async def list_models(state_dir: Path, *, command: Sequence[str] = _COMMAND) -> Mapping[str, Any]:
    """Everything that `foretype use` would choose from on this machine.

    Raises:
        ModelChoiceError: it cannot be told.
    """
    return await _run([*command, "--state-dir", str(state_dir)], lambda event: None)


async def use_model(name: str, state_dir: Path, told: Told, *, command: Sequence[str] = _COMMAND) -> Mapping[str, Any]:
    """Give the private gateway another model; a cancel ends the process, and what came of a download stays.

    Args:
        name: what `foretype use` takes.
        told: called with each event on the way: `doing` and `note` with a text, `progress` with bytes.

    Returns:
        The last event: `model`, `canary`, `measured`, `replaced`.

    Raises:
        ModelChoiceError: one sentence that says why and what to do; what served before still does.
    """
    return await _run([*command, "--state-dir", str(state_dir), "--", name], told)


async def _run(command: list[str], told: Told) -> Mapping[str, Any]:
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=_HOME,
            limit=_LINE_BYTES,
        )
    except OSError as error:
        raise ModelChoiceError(f"`foretype use` cannot be started ({error})") from error
    assert process.stdout is not None and process.stderr is not None
    words = asyncio.ensure_future(process.stderr.read())
    last: Mapping[str, Any] = {}
    try:
        async for line in process.stdout:
            with contextlib.suppress(msgspec.MsgspecError):
                last = msgspec.json.decode(line, type=dict[str, Any])
                told(last)
        await process.wait()
        said = (await words).decode("utf-8", "replace").strip()
    except ValueError as error:  # a line without an end
        raise ModelChoiceError("`foretype use` said something that cannot be read; try it in a terminal") from error
    finally:
        words.cancel()
        if process.returncode is None:
            process.terminate()
            await process.wait()
    if last.get("event") == "failed":
        raise ModelChoiceError(str(last.get("text", "")))
    if process.returncode != 0:
        if "No module named" in said:
            raise ModelChoiceError(_NOT_INSTALLED)
        raise ModelChoiceError(
            f"`foretype use` failed ({said.splitlines()[-1] if said else 'it said nothing'}); try it in a terminal"
        )
    return last
