"""The sweep behind `docs/measurements/shipped-model.md`: systems at the default settings, then layout × debounce × client."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from foretype_client.policy.trigger import PolicyOptions
from foretype_context.prompt.templates import grammar
from foretype_eval.errors import RepositoryError
from foretype_eval.gateway import GatewayOptions
from foretype_eval.replay.commits import Commit, commits_of, load_commit
from foretype_eval.replay.finished_rows import FinishedRows
from foretype_eval.replay.results import CommitRow, paired_ratio, summary
from foretype_eval.replay.run import ReplayOptions, replay_commit
from foretype_eval.replay.trace import LatencyTrace, TraceRow
from foretype_eval.replay.typist import keys_of
from foretype_eval.statistics import Interval, percentiles

from foretype_lab.results.answers import RememberingSide

__all__ = ["DEBOUNCE_MS", "SweepOptions", "choose", "pick_commits", "run_sweep"]

DEBOUNCE_MS: Final = (0.0, 75.0, 150.0, 300.0)
DEFAULT_DEBOUNCE_MS: Final = PolicyOptions().debounce_ms
SYSTEMS: Final = ("model", "unfiltered", "network", "adaptive", "copy_line", "empty")
WORTH_KSR: Final = 0.005
"""A difference of keystrokes saved that is worth no more requests, and not their loss."""

RIGHT_MIN: Final = 30
"""Fewer right suggestions move no default."""

_TRACE_ROWS: Final = 150
_LOOK_BACK: Final = 400

Progress = Callable[[str, int, int], None]


class SweepOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is swept.

    Attributes:
        repos: folders, or bare folders, of git repositories that the model was not trained on.
        keys: keystrokes to type in all, spread over the repositories; newest commits first.
        keys_min, keys_max: commits outside are passed over: trifles, and imports that nobody typed.
        minutes: after them nothing new is begun; what is missing is named, and a second run makes it.
        out: rows and the latency trace; a run that was stopped goes on there.
        layouts: None for all that the model's grammar knows.
        answers: a file that keeps the model's answers for the next run, text and all; None keeps none.
    """

    repos: Sequence[Path]
    out: Path
    keys: int = 1000
    minutes: float | None = None
    keys_min: int = 30
    keys_max: int = 260
    suffixes: Sequence[str] = (".py",)
    layouts: Sequence[str] | None = None
    debounce_ms: Sequence[float] = DEBOUNCE_MS
    seed: int = 0
    answers: Path | None = None
    gateway: GatewayOptions = GatewayOptions()


class _Work(msgspec.Struct, frozen=True):
    repo: Path
    commit: Commit


def pick_commits(repo: Path, options: SweepOptions, keys: int) -> list[Commit]:
    """The newest commits of a size that somebody types, until their keystrokes are `keys`. Raises RepositoryError."""
    found: list[Commit] = []
    for id in commits_of(repo, _LOOK_BACK, suffixes=options.suffixes):
        if keys <= 0:
            break
        commit = load_commit(repo, id, suffixes=options.suffixes)
        size = sum(keys_of(stretch.target) for stretch in commit.stretches)
        if options.keys_min <= size <= options.keys_max:
            found.append(commit)
            keys -= size
    return found


def run_sweep(
    options: SweepOptions, *, progress: Progress, clock: Callable[[], float] = time.monotonic
) -> dict[str, Any]:
    """Run what is not there yet, and report.

    Raises:
        RepositoryError, LatencyTraceError, GatewayGoneError: with what is wrong and what to do.
    """
    over_s = clock() + (float("inf") if options.minutes is None else options.minutes * 60)
    share = options.keys // len(options.repos)
    work = [_Work(repo, commit) for repo in options.repos for commit in pick_commits(repo, options, share)]
    if len(work) < 2:
        raise RepositoryError(
            f"{len(work)} commits with {options.keys_min} to {options.keys_max} keystrokes; name more repositories"
        )
    options.out.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        side = stack.enter_context(RememberingSide(options.gateway, kept=options.answers))
        model = _digest(side, options)
        trace = _trace(options, work, side, model, progress)
        layouts = options.layouts or grammar(side.profile.grammar).layouts
        default = side.profile.layout
        cells: list[dict[str, Any]] = []
        rows_of: dict[str, list[CommitRow]] = {}
        left_out: list[str] = []

        def cell(system: str, layout: str, debounce_ms: float, reuse: bool) -> None:
            replay = ReplayOptions(
                repo=work[0].repo,
                debounce_ms=debounce_ms,
                reuse=reuse,
                layout=layout,
                seed=options.seed,
                gateway=options.gateway,
            )
            settings = msgspec.structs.replace(replay, repo=Path(), gateway=GatewayOptions())
            journal = FinishedRows(options.out, (settings, model, side.profile.min_mean_logprob, trace.rows))
            client = "reuse" if reuse else "strict"
            name = f"{system} {layout} {debounce_ms:g} {client}"
            rows: list[CommitRow] = []
            for done, item in enumerate(work):
                row = journal.get(system, item.commit.id)
                if row is None and clock() >= over_s:
                    left_out.append(name)
                    return
                if row is None:
                    own = msgspec.structs.replace(replay, repo=item.repo)
                    row, _ = replay_commit(own, system, item.commit, side, trace)
                    journal.add(row)
                rows.append(row)
                progress(name, done + 1, len(work))
            rows_of[name] = rows
            at = {"name": name, "system": system, "layout": layout, "debounce_ms": debounce_ms, "client": client}
            cells.append(at | summary(rows, seed=options.seed))

        for system in SYSTEMS:
            cell(system, default, DEFAULT_DEBOUNCE_MS, True)
        for debounce_ms in options.debounce_ms:
            cell("unfiltered", default, debounce_ms, True)
        for layout in sorted(layouts, key=lambda name: name != default):  # the most wanted first, should time run out
            for debounce_ms in options.debounce_ms:
                for reuse in (True, False):
                    cell("network", layout, debounce_ms, reuse)
        profile = side.profile
        asked = side.asked
    unique = list({entry["name"]: entry for entry in cells}.values())
    unique.sort(key=lambda entry: (entry["layout"] != default, entry["layout"], entry["debounce_ms"], entry["client"]))
    sweep = [entry for entry in unique if entry["system"] == "network"]
    return {
        "model": profile.model,
        "model_digest": model,
        "grammar": profile.grammar,
        "profile_layout": default,
        "repositories": [_repo_name(repo) for repo in options.repos],
        "commits": len(work),
        "newest": [_newest(work, repo) for repo in options.repos],
        "keys": sum(keys_of(s.target) for item in work for s in item.commit.stretches),
        "accept_rule": "A-line",
        "decide_ms": 200,
        "seed": options.seed,
        "trace": _trace_figures(trace),
        "model_requests": asked,
        "systems": [
            entry
            for entry in sorted(unique, key=lambda entry: SYSTEMS.index(entry["system"]))
            if entry["debounce_ms"] == DEFAULT_DEBOUNCE_MS and entry["client"] == "reuse" and entry["layout"] == default
        ],
        "sweep": sweep,
        "product": [entry for entry in unique if entry["system"] == "unfiltered"],
        "left_out": sorted(set(left_out)),
        "chosen": choose(sweep, rows_of, default=f"network {default} {DEFAULT_DEBOUNCE_MS:g} reuse", seed=options.seed),
    }


def choose(
    sweep: Sequence[dict[str, Any]], rows_of: dict[str, list[CommitRow]], *, default: str, seed: int
) -> dict[str, Any] | None:
    """Whether another setting should be the default; None where the default itself was not measured.

    The default moves to the best of those settings that save more, with the whole paired interval above zero, or above
    WORTH_KSR where the default asks a fifth less; else to the one that asks least of those that ask a fifth less and lose, by
    the whole interval, at most WORTH_KSR. So no two settings take each other's place in turns. Without an interval nothing moves
    it. It stays where fewer than RIGHT_MIN suggestions were right: a bootstrap over hardly any event is narrow and says nothing.
    """
    known = {entry["name"]: entry for entry in sweep if entry["ksr"] is not None}
    if default not in known:
        return None
    best = max(known.values(), key=lambda entry: entry["ksr"])
    gains: dict[str, Interval] = {}
    for name in known:
        gain = paired_ratio(rows_of[default], rows_of[name], "keys_with", "keys_without", seed=seed)
        if gain is not None:
            gains[name] = gain
    own = known[default]
    right = sum(row.sessions_right for row in rows_of[best["name"]])

    def fifth_less(one: dict[str, Any], other: dict[str, Any]) -> bool:
        return one["requests"] <= 0.8 * other["requests"]

    better = [
        known[name]
        for name, gain in gains.items()
        if gain.low is not None and gain.low > (WORTH_KSR if fifth_less(own, known[name]) else 0.0)
    ]
    cheaper = [
        known[name]
        for name, gain in gains.items()
        if gain.low is not None and gain.low >= -WORTH_KSR and fifth_less(known[name], own)
    ]
    choice = own
    if right >= RIGHT_MIN and better:
        choice = max(better, key=lambda entry: entry["ksr"])
    elif right >= RIGHT_MIN and cheaper:
        choice = min(cheaper, key=lambda entry: (entry["requests"], -entry["ksr"]))

    def brief(entry: dict[str, Any]) -> dict[str, Any]:
        gain = gains.get(entry["name"])
        figures = None if gain is None else list(gain.rounded(6).values())
        return {"name": entry["name"], "ksr": entry["ksr"], "requests": entry["requests"], "gain": figures}

    return {"default": brief(own), "best": brief(best), "choice": brief(choice), "right": right, "right_min": RIGHT_MIN}


def _trace(
    options: SweepOptions, work: Sequence[_Work], side: RememberingSide, model: str, progress: Progress
) -> LatencyTrace:
    """Latencies measured on this machine with this model; from the folder if they were measured already."""
    path = options.out / f"trace-{model[:12]}.jsonl"
    if path.exists():
        return LatencyTrace.load(path)
    rows: list[TraceRow] = []
    for item in work:
        replay = ReplayOptions(repo=item.repo, seed=options.seed, gateway=options.gateway)
        _, measured = replay_commit(replay, "network", item.commit, side, None)
        rows += measured
        progress("latency trace", min(len(rows), _TRACE_ROWS), _TRACE_ROWS)
        if len(rows) >= _TRACE_ROWS:
            break
    trace = LatencyTrace(rows)
    trace.save(path)
    return trace


def _trace_figures(trace: LatencyTrace) -> dict[str, Any]:
    first = percentiles([row.deltas_ms[0] for row in trace.rows if row.deltas_ms])
    return {
        "rows": len(trace.rows),
        "ttft_ms": first._asdict(),
        "total_ms": percentiles([row.done_ms for row in trace.rows])._asdict(),
    }


def _digest(side: RememberingSide, options: SweepOptions) -> str:
    """What names these weights: the file's own digest where it is known, else what the gateway says of itself."""
    from foretype_models.artifacts import digest_file, locate
    from foretype_models.errors import ArtifactError

    if options.gateway.url is not None:
        return f"{side.profile.model}-{side.profile.tokenizer_digest}"
    try:
        path = options.gateway.model or locate().path
    except ArtifactError:
        return side.profile.model
    return digest_file(path)


def _repo_name(repo: Path) -> str:
    """The folder's name; of a bare folder or a `repo` in a folder of its own, that one's."""
    path = repo.resolve()
    return (path.parent.name if path.name in ("repo", ".git", "git") else path.name).replace("+", "/")


def _newest(work: Sequence[_Work], repo: Path) -> str:
    return next((item.commit.id[:12] for item in work if item.repo == repo), "")
