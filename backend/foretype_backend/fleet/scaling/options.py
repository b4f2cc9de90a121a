"""Bounds, targets and hours of a pool that is scaled."""

from __future__ import annotations

import datetime
import functools
import zoneinfo
from typing import Annotated, Final

import msgspec
from msgspec import Meta

_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_Count = Annotated[int, Meta(ge=0, le=10_000)]
_Positive = Annotated[float, Meta(gt=0.0, le=1e9)]


class Hours(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a lower bound of its own counts.

    Attributes:
        begin: `07:30`.
        end: The same; one that is not after `begin` is on the next day.
        replicas: Fewest in these hours. 0 lets the pool go to nothing when nobody asks, as a quality pool may at night.
        days: `mon-fri`, `sat`.
    """

    begin: str
    end: str
    replicas: _Count
    days: str = "mon-sun"

    def __post_init__(self) -> None:
        _minutes(self.begin)
        _minutes(self.end)
        _days(self.days)

    def cover(self, when: datetime.datetime) -> bool:
        """Whether a local time is in these hours."""
        begin, end, days = _minutes(self.begin), _minutes(self.end), _days(self.days)
        minute, day = when.hour * 60 + when.minute, when.weekday()
        if begin < end:
            return day in days and begin <= minute < end
        return (day in days and minute >= begin) or ((day - 1) % 7 in days and minute < end)


class ScalingOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many replicas a pool has: bounds, what one replica takes, hours and costs.

    Attributes:
        min_replicas: Fewest; an entry of `schedule` changes it for its hours.
        max_replicas: Most.
        tokens_per_replica: Uncached prompt tokens that may wait for one replica.
        running_per_replica: Requests that one replica computes well at once.
        kv_target: Share of key-value memory that running requests may hold.
        p99_objective_ms: Time to first token that 99 of 100 requests should keep to.
        down_after_s: So long fewer must be wanted before one goes.
        down_share: At most this share of the replicas goes at once, and one at least.
        cold_start_s: Of a replica, until starts have been measured.
        warm_max_replicas: Most replicas kept ready for the steepest rise within one start of the last seven days; 0 keeps none.
        learn: Be ready for what last week needed at this time.
        timezone: Of the schedule and of the learned week (IANA name).
        price_per_hour: Of one replica, in any currency.
        max_cost_per_hour: In the same currency; it is never passed.
        max_cost_per_day: Once it is spent, `min_replicas` stay.
        schedule: `[[schedule]]` tables: the lower bound in certain hours, ready when they begin.

    Raises:
        ValueError: what cannot be; the setting is named.
    """

    min_replicas: _Count = 1
    max_replicas: Annotated[int, Meta(ge=1, le=10_000)] = 1
    tokens_per_replica: _Positive = 4000.0
    running_per_replica: _Positive = 8.0
    kv_target: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.75
    p99_objective_ms: _Positive = 100.0
    down_after_s: Annotated[float, Meta(ge=0.0, le=86_400.0)] = 300.0
    down_share: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.25
    cold_start_s: Annotated[float, Meta(gt=0.0, le=3_600.0)] = 60.0
    warm_max_replicas: _Count = 2
    learn: bool = True
    timezone: str = "UTC"
    price_per_hour: Annotated[float, Meta(ge=0.0)] = 0.0
    max_cost_per_hour: _Positive | None = None
    max_cost_per_day: _Positive | None = None
    schedule: tuple[Hours, ...] = ()

    def __post_init__(self) -> None:
        if self.min_replicas > self.max_replicas:
            raise ValueError(f"min_replicas {self.min_replicas} is above max_replicas {self.max_replicas}; lower it")
        try:
            zone(self.timezone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValueError(
                f"timezone {self.timezone!r} is not known; write an IANA name such as Europe/Berlin"
            ) from error
        for name in ("max_cost_per_hour", "max_cost_per_day"):
            if getattr(self, name) is not None and not self.price_per_hour:
                raise ValueError(f"{name} needs price_per_hour, the price of one replica")
        for at, hours in enumerate(self.schedule):
            if hours.replicas > self.max_replicas:
                raise ValueError(
                    f"schedule[{at}].replicas {hours.replicas} is above max_replicas {self.max_replicas}; lower it"
                )
        if self.ceiling < self.least:
            raise ValueError(
                f"max_cost_per_hour {self.max_cost_per_hour} pays {self.ceiling} replicas, fewer than the {self.least} "
                "of min_replicas and schedule; raise it, or ask for fewer"
            )

    @property
    def ceiling(self) -> int:
        """Most replicas, by number and by cost an hour."""
        if self.max_cost_per_hour is None:
            return self.max_replicas
        return min(self.max_replicas, int(self.max_cost_per_hour / self.price_per_hour + 1e-9))

    @property
    def least(self) -> int:
        """The greatest of all lower bounds."""
        return max([self.min_replicas, *(hours.replicas for hours in self.schedule)])

    def local(self, now_s: float) -> datetime.datetime:
        """Local time of Unix seconds."""
        return datetime.datetime.fromtimestamp(now_s, zone(self.timezone))

    def scheduled(self, now_s: float) -> int | None:
        """What the schedule asks for at a time, Unix seconds: its greatest entry in force; None where there is none."""
        when = self.local(now_s)
        return max((one.replicas for one in self.schedule if one.cover(when)), default=None)

    def floor(self, now_s: float) -> int:
        """The lower bound at a time."""
        scheduled = self.scheduled(now_s)
        return self.min_replicas if scheduled is None else scheduled


@functools.cache
def zone(name: str) -> zoneinfo.ZoneInfo:
    return zoneinfo.ZoneInfo(name)


@functools.cache
def _minutes(text: str) -> int:
    hour, colon, minute = text.partition(":")
    if not (colon and len(hour) == len(minute) == 2 and (hour + minute).isdecimal()):
        raise ValueError(f"{text!r} is no time of day; write it as 07:30")
    if int(hour) > 23 or int(minute) > 59:
        raise ValueError(f"{text!r} is no time of day; 00:00 to 23:59")
    return int(hour) * 60 + int(minute)


@functools.cache
def _days(text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first not in _DAYS or (last or first) not in _DAYS:
            raise ValueError(f"{text!r} are no days; write them as mon-fri or sat,sun")
        begin, end = _DAYS.index(first), _DAYS.index(last or first)
        found |= {(begin + at) % 7 for at in range((end - begin) % 7 + 1)}
    return frozenset(found)
