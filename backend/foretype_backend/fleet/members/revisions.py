"""Which revision of the model a developer is answered by, and what became of the answers, by revision. Pure."""

from __future__ import annotations

import hashlib
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from foretype_backend.fleet.members.announced import AnnouncedRollout
from foretype_backend.reports.figures import READ_MS

_TIMES: Final = 2_048
_DEVELOPERS: Final = 50_000


def on_canary(rollout: AnnouncedRollout, developer: str) -> bool:
    """Whether a developer is in the share that the canary answers; a developer who is in at 5 % is in at 25 %."""
    digest = hashlib.sha256(f"{rollout.number}:{developer}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest) < rollout.share * (1 << 256)


def wanted_revisions(rollout: AnnouncedRollout | None, developer: str) -> list[str]:
    """The revisions that may answer a developer while a roll-out lasts, theirs first."""
    if rollout is None:
        return []
    others = [] if rollout.canary is None else [rollout.canary]
    mine = others if others and on_canary(rollout, developer) else []
    return [*mine, rollout.stable, *others]


def names_of(rollout: AnnouncedRollout | None, developer: str, revisions: Mapping[str, str]) -> Iterable[str]:
    """The replicas that may answer a developer: of the revision that is theirs, else of the stable one, of the canary, of any.

    Args:
        revisions: by replica that could answer, the one it announces.
    """
    for revision in wanted_revisions(rollout, developer):
        found = [name for name, its in revisions.items() if its == revision]
        if found:
            return found
    return revisions


class RevisionCounts(NamedTuple):
    """Since the gateway's start; times are of the last few thousand answers.

    Attributes:
        shown: suggestions that somebody can have read, as clients told.
        syntax_errors: of texts that came, those that add an error to their file.
        failed: requests that the replica did not answer to the end; another one may have.
    """

    shown: int
    accepted: int
    cancelled: int
    syntax_errors: int
    requests: int
    failed: int
    ttft_ms: Mapping[str, float]


@dataclass(slots=True)
class _Counts:
    shown: int = 0
    accepted: int = 0
    cancelled: int = 0
    syntax_errors: int = 0
    requests: int = 0
    failed: int = 0
    ttft_ms: deque[float] = field(default_factory=lambda: deque[float](maxlen=_TIMES))


class RevisionBook:
    """What a gateway counts for roll-outs."""

    def __init__(self) -> None:
        self._counts: dict[str, _Counts] = {}
        self._of: OrderedDict[str, str] = OrderedDict()  # by developer, the revision that answered last

    def asked(self, revision: str, developer: str) -> None:
        self._of[developer] = revision
        self._of.move_to_end(developer)
        if len(self._of) > _DEVELOPERS:
            self._of.popitem(last=False)
        self._one(revision).requests += 1

    def first_token(self, revision: str, seconds: float) -> None:
        self._one(revision).ttft_ms.append(1000 * seconds)

    def failed(self, revision: str) -> None:
        self._one(revision).failed += 1

    def cancelled(self, revision: str) -> None:
        self._one(revision).cancelled += 1

    def told(self, developer: str, events: Sequence[Mapping[str, object]]) -> None:
        """Feedback of a developer counts for the revision that answered them last; of one that nobody answered here it does not count."""
        revision = self._of.get(developer)
        if revision is None:
            return
        counts = self._one(revision)
        for event in events:
            if event.get("event") == "opportunity":
                counts.syntax_errors += event.get("parses") is False
            elif event.get("event") == "display":
                visible_ms, accepted = event.get("visible_ms"), event.get("end") == "accepted"
                read = isinstance(visible_ms, int | float) and visible_ms >= READ_MS
                counts.shown += accepted or read
                counts.accepted += accepted

    def statistics(self) -> dict[str, RevisionCounts]:
        return {
            revision: RevisionCounts(
                one.shown,
                one.accepted,
                one.cancelled,
                one.syntax_errors,
                one.requests,
                one.failed,
                _percentiles(one.ttft_ms),
            )
            for revision, one in self._counts.items()
        }

    def _one(self, revision: str) -> _Counts:
        return self._counts.setdefault(revision, _Counts())


def _percentiles(times_ms: Iterable[float]) -> dict[str, float]:
    ordered = sorted(times_ms)
    if not ordered:
        return {"p50": 0.0, "p99": 0.0}
    return {name: round(ordered[int(share * (len(ordered) - 1))], 3) for name, share in (("p50", 0.5), ("p99", 0.99))}
