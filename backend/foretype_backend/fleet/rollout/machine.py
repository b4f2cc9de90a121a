"""The roll-out of one revision: step by step to everybody, forward when nothing is worse, back by itself when something is. Pure.

| state | share | it ends |
|---|---|---|
| `rolling` | 5, 25, 50, 100 % | a step has lasted its time, has its evidence and no guardrail against it: the next one; after the last `done` |
| `back` | 0 | never: a new roll-out is one with a new number |
| `done` | 0, the new revision is the stable one | the same |

Evidence counts from the beginning of a step, since who is in changes with it. At the last step nobody is on the stable revision any more: what was counted of it one step before stands beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from foretype_backend.errors import RolloutError
from foretype_backend.experiments.guardrails import Guardrails
from foretype_backend.fleet.rollout.counters import Counts, GatewayLook, counted
from foretype_backend.fleet.rollout.guards import LATE_LOOKS, is_late, judge

VERSION: Final = 1
_MOST_EVENTS: Final = 50
_Share = Annotated[float, Meta(gt=0.0, le=1.0)]


class RolloutOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a revision is rolled out.

    Attributes:
        steps: shares of developers, rising, the last one 1.
        step_s: least time of a step.
        requests_min: of the canary in a step.
        evidence_min: requests, or suggestions shown, that a guardrail needs of both revisions.
        guardrails: margins; None switches one off. What costs and what is retained are not counted here.
        failed: by how much the share of failed requests may rise, of 1.
        keep_s: how long the former revision stays warm when everybody is on the new one.
    """

    steps: tuple[_Share, ...] = (0.05, 0.25, 0.5, 1.0)
    step_s: Annotated[float, Meta(ge=0.0)] = 600.0
    requests_min: Annotated[int, Meta(ge=1)] = 200
    evidence_min: Annotated[int, Meta(ge=20)] = 50
    guardrails: Guardrails = Guardrails(cost=None, retention=None)
    failed: Annotated[float, Meta(ge=0.0, le=1.0)] | None = 0.01
    keep_s: Annotated[float, Meta(ge=0.0)] = 3_600.0

    def __post_init__(self) -> None:
        if len(self.steps) < 2 or list(self.steps) != sorted(set(self.steps)) or self.steps[-1] != 1.0:
            raise ValueError(f"steps {list(self.steps)} must rise from below 1 to 1, as in [0.05, 0.25, 0.5, 1]")
        for name in ("cost", "retention"):
            if getattr(self.guardrails, name) is not None:
                raise ValueError(f"guardrails.{name} is not counted by gateways; leave it out")

    def margins(self) -> dict[str, float]:
        found = self.guardrails.margins()
        return found if self.failed is None else {**found, "failed": self.failed}


class RolloutEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What happened, when (Unix seconds), and why."""

    at_s: float
    what: str
    why: str


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """One roll-out, as it is kept.

    Attributes:
        number: of this roll-out in its pool; who is in depends on it.
        step: index into the options' steps.
        began_s: of this step.
        waits: why it does not go forward now; "" where it will.
        gateways: what each said last.
        stable_counts, canary_counts: in this step.
        beside: of the stable revision one step before, for the last one.
        late_looks: one after the other.
        ended_s: when it was done or went back.
    """

    version: int = VERSION
    pool: str
    stable: str
    canary: str
    number: int
    options: RolloutOptions = RolloutOptions()
    state: Literal["rolling", "back", "done"] = "rolling"
    step: int = 0
    began_s: float
    waits: str = ""
    gateways: dict[str, GatewayLook] = {}
    stable_counts: Counts = Counts()
    canary_counts: Counts = Counts()
    beside: Counts = Counts()
    late_looks: int = 0
    ended_s: float | None = None
    events: tuple[RolloutEvent, ...] = ()

    @property
    def share(self) -> float:
        """Of developers on the canary."""
        return self.options.steps[self.step] if self.state == "rolling" else 0.0

    @property
    def last(self) -> RolloutEvent:
        return self.events[-1]


def gate_passes(verdict: object) -> str:
    """What the quality gate said of the canary, in words: `foretype eval gate --json`. Raises RolloutError where it does not pass."""
    if not isinstance(verdict, Mapping) or not {"verdict", "passes", "metric"} <= set(verdict):  # pyright: ignore[reportUnknownArgumentType]
        raise RolloutError("the gate's file is no verdict; write it with `foretype eval gate … --json > FILE`")
    told: dict[str, Any] = dict(verdict)  # pyright: ignore[reportUnknownArgumentType]
    words = f"{told['metric']} {told['verdict']}" + (f": {told['reason']}" if told.get("reason") else "")
    if told["passes"] is not True or told["verdict"] != "passes":
        raise RolloutError(f"the quality gate does not let it through ({words}); a better candidate, or more items")
    return f"the quality gate: {words}"


def begin(
    pool: str,
    *,
    stable: str,
    canary: str,
    number: int,
    now_s: float,
    options: RolloutOptions | None = None,
    verdict: object = None,
    without_gate: str = "",
    share: float | None = None,
) -> Rollout:
    """A new roll-out, at its first step.

    Args:
        number: greater than those of all before it in this pool.
        verdict: the quality gate's, read from its file.
        without_gate: why it begins without one, in the operator's words.
        share: of the first step, where it is another one.

    Raises:
        RolloutError: no verdict that passes, or nothing to roll out.
    """
    if stable == canary:
        raise RolloutError(f"{canary!r} is the stable revision already; name another one")
    if verdict is None and not without_gate:
        raise RolloutError("a roll-out needs the quality gate's verdict, or a reason to go without one")
    options = options or RolloutOptions()
    if share is not None:
        if not 0 < share < 1:
            raise RolloutError(f"a canary's share is above 0 and below 1, not {share:g}: others stand beside it")
        options = msgspec.structs.replace(options, steps=(share, *(one for one in options.steps if one > share)))
    why = gate_passes(verdict) if verdict is not None else f"without the quality gate: {without_gate}"
    made = Rollout(pool=pool, stable=stable, canary=canary, number=number, options=options, began_s=now_s)
    return _noted(made, now_s, f"{made.share:.0%}", why)


def look(rollout: Rollout, told: Mapping[str, Mapping[str, Counts]], now_s: float) -> Rollout:
    """With what gateways say now, and whatever follows from it.

    Args:
        told: by gateway and revision, counts since that gateway's start. A gateway that is silent is left out.
    """
    if rollout.state != "rolling":
        return rollout
    both = (rollout.stable, rollout.canary)
    ours = {name: {one: counts[one] for one in both if one in counts} for name, counts in told.items()}
    news = counted(rollout.gateways, ours, now_s)
    stable, canary = rollout.stable_counts, rollout.canary_counts
    for revisions in news.fresh.values():
        stable = stable.plus(revisions.get(rollout.stable, Counts()))
        canary = canary.plus(revisions.get(rollout.canary, Counts()))
    options = rollout.options
    late = None
    if options.guardrails.first_token is not None:
        fewest = max(1, options.requests_min // 10)
        late = is_late(news.fresh, rollout.stable, rollout.canary, options.guardrails, fewest)
    looks = rollout.late_looks if late is None else rollout.late_looks + 1 if late else 0
    rollout = msgspec.structs.replace(
        rollout, gateways=news.gateways, stable_counts=stable, canary_counts=canary, late_looks=looks
    )
    if looks >= LATE_LOOKS:
        limit = options.guardrails.first_token_ms
        return back(
            rollout, now_s, f"first_token: the p99 was above {limit:g} ms and the stable revision's, three looks on end"
        )
    whole = rollout.step == len(options.steps) - 1
    found = judge(
        options.margins(),
        rollout.beside if whole and len(options.steps) > 1 else stable,
        canary,
        evidence_min=options.evidence_min,
        steps=len(options.steps),
    )
    breached = next((one.breached for one in found if one.breached), None)
    if breached is not None:
        return back(rollout, now_s, breached)
    waits = _waits(rollout, [one.waits for one in found if one.waits], now_s)
    if waits:
        return msgspec.structs.replace(rollout, waits=waits)
    return _forward(rollout, now_s, "; ".join(one.told for one in found))


def _waits(rollout: Rollout, found: list[str], now_s: float) -> str:
    """Why it does not go forward; "" where it does."""
    options, requests = rollout.options, rollout.canary_counts.requests or 0
    if now_s - rollout.began_s < options.step_s:
        return f"{now_s - rollout.began_s:.0f} s of {options.step_s:.0f} at this step"
    if requests < options.requests_min:
        return f"{requests} requests of the canary; {options.requests_min} are needed at this step"
    if rollout.late_looks:
        return f"first_token: late in the last {rollout.late_looks} looks"
    return "; ".join(found)


def _forward(rollout: Rollout, now_s: float, why: str) -> Rollout:
    if rollout.step + 1 == len(rollout.options.steps):
        ended = msgspec.structs.replace(rollout, state="done", waits="", ended_s=now_s)
        return _noted(ended, now_s, "done", why)
    moved = msgspec.structs.replace(
        rollout,
        step=rollout.step + 1,
        began_s=now_s,
        waits="",
        beside=rollout.stable_counts,
        stable_counts=Counts(),
        canary_counts=Counts(),
    )
    return _noted(moved, now_s, f"{moved.share:.0%}", why)


def back(rollout: Rollout, now_s: float, why: str) -> Rollout:
    """Everybody to the stable revision, now; after `done` to the one that was stable before, as long as it is warm.

    Raises:
        RolloutError: the former revision is not kept any more.
    """
    if rollout.state == "back":
        return rollout
    if rollout.stable not in warm(rollout, now_s):
        raise RolloutError(f"{rollout.stable} is not kept warm any more; roll it out as a new revision")
    ended = msgspec.structs.replace(rollout, state="back", waits="", ended_s=now_s)
    return _noted(ended, now_s, "back", why)


def announced(rollout: Rollout) -> dict[str, Any]:
    """What the directory says of its pool, in `/rollouts`."""
    done = rollout.state == "done"
    return {
        "stable": rollout.canary if done else rollout.stable,
        "canary": rollout.canary if rollout.state == "rolling" else None,
        "share": rollout.share,
        "number": rollout.number,
    }


def warm(rollout: Rollout, now_s: float) -> tuple[str, ...]:
    """Revisions whose replicas have to run now."""
    if rollout.state == "rolling":
        return rollout.stable, rollout.canary
    if rollout.state == "back":
        return (rollout.stable,)
    safe = rollout.ended_s is not None and now_s - rollout.ended_s >= rollout.options.keep_s
    return (rollout.canary,) if safe else (rollout.stable, rollout.canary)


def read(text: bytes) -> Rollout:
    """A roll-out as it was kept (`msgspec.json.encode`). Raises RolloutError."""
    try:
        found = msgspec.json.decode(text, type=Rollout)
    except msgspec.DecodeError as error:
        raise RolloutError(f"the kept roll-out cannot be read: {error}; take the file away to begin anew") from error
    if found.version != VERSION:
        raise RolloutError(
            f"the kept roll-out is of version {found.version}, this is {VERSION}; use the release that wrote it"
        )
    if not 0 <= found.step < len(found.options.steps):
        raise RolloutError(f"the kept roll-out is at step {found.step}; take the file away to begin anew")
    return found


def _noted(rollout: Rollout, now_s: float, what: str, why: str) -> Rollout:
    events = (*rollout.events, RolloutEvent(at_s=now_s, what=what, why=why))[-_MOST_EVENTS:]
    return msgspec.structs.replace(rollout, events=events)
