"""What a user takes, kept from one session to the next: a small file in the state directory, numbers by language and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

import msgspec
from foretype_context.errors import NotSmallError
from foretype_context.folder.small_files import read_small
from foretype_wire.tasks import end_tasks

from foretype_client.adaptive.habits import Habit, Habits, LookedAtText

_logger: Final = logging.getLogger(__name__)

HABITS_NAME: Final = "habits.json"
_SAVE_S: Final = 60.0
_BYTES_MAX: Final = 1 << 18


class _File(msgspec.Struct, kw_only=True):
    v: int = 1
    languages: dict[str, Habit] = {}


def load(path: Path) -> dict[str, Habit]:
    """What the file says; empty if there is none or it cannot be read: then everything is learned anew."""
    try:
        return msgspec.json.decode(read_small(path, _BYTES_MAX), type=_File).languages
    except FileNotFoundError:
        return {}
    except (OSError, NotSmallError, msgspec.DecodeError) as error:
        _logger.warning("%s cannot be read (%s): what you take is learned anew", path, error)
        return {}


def forget(path: Path) -> bool:
    """Remove the file; False where there is none."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True


@contextlib.asynccontextmanager
async def kept_in(path: Path) -> AsyncGenerator[Habits]:
    """Habits that are read now, saved once a minute while they grow, and in the end."""
    habits = Habits(await asyncio.to_thread(load, path))
    saving = asyncio.create_task(_save_now_and_then(path, habits), name="foretype habits")
    try:
        yield habits
    finally:
        await end_tasks(saving)
        await _save(path, habits)


async def _save_now_and_then(path: Path, habits: Habits) -> None:
    while True:
        await asyncio.sleep(_SAVE_S)
        await _save(path, habits)


async def _save(path: Path, habits: Habits) -> None:
    looks = habits.take()
    if not looks:
        return
    try:
        habits.use(await asyncio.to_thread(_add, path, looks))
    except OSError as error:
        _logger.warning("%s cannot be written (%s): what you take is not remembered", path, error)


def _add(path: Path, looks: list[LookedAtText]) -> dict[str, Habit]:
    """Add these looks to what the file says by now: other editors write it, too, and `foretype privacy delete` removes it."""
    known = load(path)
    for look in looks:
        known.setdefault(look.language, Habit()).add(look.chance, look.share)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.json.encode(_File(languages=known)))
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return known
