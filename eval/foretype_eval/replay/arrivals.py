"""What a gateway would be asked while commits are typed: the arrivals that `foretype simulate` plays.

A replay as any other (the product's client, its policy and its cache), at one fixed latency, of which the requests alone are kept:
when each came, of which class, how long its prompt was, and how much of it the requests before it had begun with.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from foretype_context.prompt.segments import Segment
from foretype_context.text.strings import common_prefix
from foretype_wire.messages import Complete

from foretype_eval.errors import RepositoryError
from foretype_eval.replay.answer_sources import Simulator, copy_line_of
from foretype_eval.replay.commits import commits_of, load_commit
from foretype_eval.replay.run import ReplayOptions, replay_commit
from foretype_eval.replay.trace import LatencyTrace, SimulatedGateway, TraceRow
from foretype_eval.replay.virtual import VirtualLoop

_FIRST_MS: Final = 60.0
_TOKEN_MS: Final = 6.0
_REMEMBERED: Final = 16
"""Prompts that a new one may begin like: those of the documents that are open."""
_Call = tuple[float, Complete[Segment]]


class _Noting(Simulator):
    """A simulator that keeps what it was asked, and when, for the commit in hand."""

    calls: list[_Call]

    def gateway(
        self,
        loop: VirtualLoop,
        trace: LatencyTrace | None,
        rng: Random,
        predict: Callable[[Complete[Segment]], str] | None = None,
    ) -> SimulatedGateway:
        calls, answer = list[_Call](), predict or copy_line_of
        self.calls = calls

        def noted(call: Complete[Segment]) -> str:
            calls.append((loop.time(), call))
            return answer(call)

        return super().gateway(loop, trace, rng, noted)


def record_arrivals(
    repo: Path,
    commits: str | int,
    *,
    suffixes: Sequence[str] = (".py",),
    oracle: float = 0.5,
    requests: int = 60,
    seed: int = 0,
    progress: Callable[[str, int, int], None] = lambda _name, _done, _all: None,
) -> dict[str, Any]:
    """Type commits; of each the requests.

    Args:
        oracle: share of lines that the simulated model knows (:mod:`foretype_eval.replay.oracle`).
        requests: of a stretch; what of a commit is left over, is left out.

    Returns:
        `stretches`: of each `[gap_s, class, prompt_tokens, shared_tokens]` by request, the first gap 0.

    Raises:
        RepositoryError: there is nothing to type.
    """
    options = ReplayOptions(
        repo=repo, commits=commits, suffixes=suffixes, systems=("network",), simulate=True, oracle=oracle, seed=seed
    )
    times_ms = [_FIRST_MS + _TOKEN_MS * at for at in range(24)]
    trace = LatencyTrace([TraceRow(times_ms, times_ms[-1] + _TOKEN_MS)])
    side = _Noting.make(trace)
    ids = commits_of(repo, commits, suffixes=suffixes)
    stretches: list[list[list[Any]]] = []
    for number, id in enumerate(ids, start=1):
        replay_commit(options, "network", load_commit(repo, id, suffixes=suffixes), side, trace)
        rows = _rows(side.calls)
        stretches += [_stretch(rows[at : at + requests]) for at in range(0, len(rows) - requests + 1, requests)]
        progress("commits", number, len(ids))
    if not stretches:
        raise RepositoryError(f"{repo}: nothing was asked for while {commits!r} commits were typed")
    return {"stretches": stretches}


def _rows(calls: Sequence[_Call]) -> list[list[Any]]:
    rows: list[list[Any]] = []
    last: deque[str] = deque(maxlen=_REMEMBERED)
    before_s = calls[0][0] if calls else 0.0
    for at_s, call in calls:
        text = "".join(segment.text for segment in call.segments)
        tokens = call.prompt_tokens or 0
        common = max((common_prefix(text, one) for one in last), default=0)
        rows.append([round(at_s - before_s, 3), call.class_.value, tokens, tokens * common // max(1, len(text))])
        before_s = at_s
        last.append(text)
    return rows


def _stretch(rows: list[list[Any]]) -> list[list[Any]]:
    return [[0.0, *rows[0][1:]], *rows[1:]]
