"""The scheduler that a configuration asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
from foretype_wire.messages import RequestClass

from foretype_backend.admission.pressure import Pressure
from foretype_backend.admission.scheduler import Scheduler, SlotLimits
from foretype_backend.config.settings import AdmissionConfig, LimitsConfig


def promised_s(admission: AdmissionConfig) -> dict[str, float]:
    """Promised seconds to first token by class, and by the mode `fim`."""
    return {name: value / 1000 for name, value in msgspec.structs.asdict(admission.objectives_ms).items()}


def objectives_s(admission: AdmissionConfig) -> dict[str, float]:
    """Those that admission defends; empty where nothing is shed."""
    return promised_s(admission) if admission.shed else {}


def make_scheduler(
    limits: LimitsConfig, admission: AdmissionConfig | None, can_admit: Callable[[int], bool] = lambda _: True
) -> Scheduler:
    """The scheduler of a configuration.

    Args:
        can_admit: whether the engines have memory for so many tokens more.
    """
    bounds = SlotLimits(max_running=limits.max_running, max_waiting=limits.max_waiting)
    if admission is None:
        return Scheduler(bounds, can_admit=can_admit)
    reserved = {
        RequestClass(name): slots for name, slots in msgspec.structs.asdict(admission.reserved).items() if slots
    }
    bounds = replace(bounds, reserved=reserved, refuse_share=admission.refuse_share)
    by_class = {RequestClass(name): value for name, value in objectives_s(admission).items() if name != "fim"}
    if not by_class:
        return Scheduler(bounds, can_admit=can_admit)
    shares = {"refuse_share": admission.refuse_share, "resume_share": admission.resume_share}
    return Scheduler(bounds, Pressure(by_class, **shares), can_admit=can_admit)
