"""Giving the private gateway another model: tried first, written then, and put in the place of the one that runs."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import filelock
from foretype_client.errors import GatewayStartError
from foretype_client.private_gateway.finding import PROFILE_NAME
from foretype_client.private_gateway.starting import replace_gateway

from foretype_models.errors import UseError
from foretype_models.use.choose import ModelWish, choose
from foretype_models.use.profile import Choice, keep, write
from foretype_models.use.trial import CanaryVerdict, TrialFigures, try_out
from foretype_models.watching import Watcher

_LOCK: Final = "use.lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Switched:
    """What came of it.

    Attributes:
        verdict, figures: of the trial; None for the shipped model, which needs none.
        replaced: whether a gateway ran, whose clients now have this model.
    """

    choice: Choice
    verdict: CanaryVerdict | None = None
    figures: TrialFigures | None = None
    replaced: bool


def switch(asked: ModelWish, state_dir: Path, events: Watcher, *, bench_s: float = 10.0) -> Switched:
    """Do what was asked for. Blocking, for as long as a download and a start take.

    Raises:
        UseError: it could not be done; what served before still does, and the chosen profile is as it was.
    """
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with filelock.FileLock(state_dir / _LOCK, blocking=False, mode=0o600):
            choice = choose(asked, events)
            return asyncio.run(_switch(choice, asked.anyway, state_dir, events, bench_s))
    except filelock.Timeout:
        raise UseError("another `foretype use` is at work; wait for it") from None
    except OSError as error:
        raise UseError(
            f"{state_dir} cannot be written to ({error.strerror or error}); give --state-dir, or correct its owner or mode"
        ) from error


async def _switch(choice: Choice, anyway: bool, state_dir: Path, events: Watcher, bench_s: float) -> Switched:
    verdict: CanaryVerdict | None = None
    figures: TrialFigures | None = None
    if not choice.shipped:
        verdict, figures = await try_out(choice, state_dir, events.doing, bench_s=bench_s)
        _check(choice, verdict, anyway)
    profile = state_dir / PROFILE_NAME
    former = await asyncio.to_thread(profile.read_text, "utf-8") if profile.is_file() else None
    await asyncio.to_thread(keep, choice, state_dir)
    try:
        events.doing("giving it to the private gateway")
        replaced = await replace_gateway(state_dir, clock=time.monotonic)
    except GatewayStartError as error:
        if former is None:
            profile.unlink(missing_ok=True)
        else:
            await asyncio.to_thread(write, profile, former)
        raise UseError(
            f"the private gateway does not start with {choice.name} ({error}); the former one goes on"
        ) from error
    return Switched(choice=choice, verdict=verdict, figures=figures, replaced=replaced is not None)


def _check(choice: Choice, verdict: CanaryVerdict, anyway: bool) -> None:
    if anyway:
        return
    if verdict.wrong:
        raise UseError(
            f"{choice.name} is asked in a way that it does not understand, or was trained to chat ({verdict.wrong}); take a base "
            "model of a known family, or --anyway"
        )
    if verdict.right == 0:
        raise UseError(
            f"{choice.name} filled none of {verdict.asked} easy holes, which every good model fills; take another, or --anyway"
        )
