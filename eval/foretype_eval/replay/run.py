"""The replay: systems × commits, each on a fresh client and on a virtual clock.

All systems see the same typing
rhythm for the same seed and commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
from foretype_client.adaptive.candidates import CopyLine, LocalModel
from foretype_client.adaptive.habits import Habit, Habits
from foretype_client.adaptive.model import AdaptiveModel
from foretype_client.adaptive.table import CorpusTable, shipped_table
from foretype_client.adaptive.threshold import SHOW_RULE
from foretype_client.flow.cache import CompletionCache
from foretype_client.flow.flow import CompletionFlow, FlowOptions
from foretype_client.flow.inflight import AnswerRules
from foretype_client.policy.switches import Switches
from foretype_client.policy.trigger import Policy, PolicyOptions
from foretype_context.prompt.assemble import Assembler
from foretype_context.syntax.languages import language_of

from foretype_eval.errors import EvalError, RepositoryError
from foretype_eval.gateway import GatewayOptions
from foretype_eval.replay.accept import Rule
from foretype_eval.replay.answer_sources import LiveGateway, Simulator, copy_line_of
from foretype_eval.replay.commits import Commit, commits_of, files_before, load_commit
from foretype_eval.replay.developer import Flow, TypingDeveloper
from foretype_eval.replay.finished_rows import FinishedRows
from foretype_eval.replay.oracle import oracle_of
from foretype_eval.replay.recorded import load_recorded
from foretype_eval.replay.results import CommitRow, row_of, summary
from foretype_eval.replay.strict import StrictFlow
from foretype_eval.replay.trace import LatencyTrace, MeasuredGateway, ReplayGateway, TraceRow
from foretype_eval.replay.virtual import VirtualLoop

SYSTEMS: Final = ("model", "adaptive", "copy_line", "empty")
PREVIOUS: Final = "previous_model"
NEURAL: Final = ("model", "unfiltered", "network", PREVIOUS)
UNFILTERED: Final = ("unfiltered", "network")
"""With `unsure` switched on: what a profile's least confidence hides can be seen nowhere else."""


class ReplayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One replay.

    Attributes:
        repo: a git repository, or a recording of edits.
        commits: number of newest commits, or a range `A..B`.
        systems: of `model` (the product), `unfiltered` (the product that shows all the model says), `network` (that without
            its local candidate), `adaptive` (the local candidate alone), `copy_line`, `empty`.
        reuse: the product's client; False is the strict one.
        simulate: no gateway: latencies from `latency_trace`, text from the copy-line predictor.
        oracle: share of lines that the simulated model knows (:mod:`foretype_eval.replay.oracle`).
        previous_model: another model file; the product with it is the row `previous_model`.
        learn: the rule of showing learns from one commit to the next what the developer takes; each system from nothing.
        in_comments, in_strings: whether the client asks there; None is its default.
        with_, without: parts of the client's policy that are switched on, and off (:class:`foretype_client.policy.switches.Switches`).
        decide_ms: how long a suggestion must be visible before it can be accepted.
        growing: the editor is answered with beginnings and asks again when they grow, as those with a plugin of ours.
    """

    repo: Path
    commits: str | int = 10
    suffixes: Sequence[str] = (".py",)
    systems: Sequence[str] = SYSTEMS
    rule: Rule = Rule.LINE
    reuse: bool = True
    debounce_ms: float = 75.0
    layout: str | None = None
    learn: bool = False
    in_comments: bool | None = None
    in_strings: bool | None = None
    with_: Sequence[str] = ()
    without: Sequence[str] = ()
    decide_ms: float = 200.0
    growing: bool = False
    seed: int = 0
    simulate: bool = False
    oracle: float = 0.0
    latency_trace: Path | None = None
    save_trace: Path | None = None
    out: Path | None = None
    gateway: GatewayOptions = GatewayOptions()
    previous_model: Path | None = None


def run_replay(options: ReplayOptions, *, progress: Callable[[str, int, int], None]) -> dict[str, Any]:
    """Replay, and report per system.

    Raises:
        RepositoryError, EvalError, GatewayGoneError: with what is wrong and what to do.
    """
    if options.simulate and options.save_trace is not None:
        raise EvalError(
            "--save-trace: latencies are measured with a gateway, and --simulate measures none; leave one out"
        )
    trace = LatencyTrace.load(options.latency_trace) if options.latency_trace is not None else None
    if options.simulate and trace is None:
        raise EvalError("--simulate needs --latency-trace FILE; a run with --save-trace FILE makes one")
    commits = _commits(options)
    ids = [commit.id for commit in commits]
    with contextlib.ExitStack() as stack:
        needs_gateway = not options.simulate and set(NEURAL) & set(options.systems)
        real = stack.enter_context(LiveGateway(options.gateway)) if needs_gateway else None
        former = None
        if options.previous_model is not None and not options.simulate:
            own = msgspec.structs.replace(options.gateway, url=None, token=None, model=options.previous_model)
            former = stack.enter_context(LiveGateway(own))
        systems = (*options.systems, PREVIOUS) if former is not None else tuple(options.systems)
        simulator = Simulator.make(trace) if options.simulate and trace is not None else None
        side = real or simulator
        # How many commits, which systems and where things are written change no row; of a trace its rows count, not its name.
        settings = msgspec.structs.replace(
            options,
            out=None,
            save_trace=None,
            commits=options.commits if options.learn else 0,  # what was learned comes from those before
            systems=(),
            latency_trace=None,
        )
        profile, laid = None if side is None else side.profile, None if trace is None else trace.rows
        journal = FinishedRows(options.out, (settings, options.repo.resolve(), profile, laid))
        learned: dict[str, dict[str, Habit]] = {}
        for system in systems:
            habits = Habits() if options.learn else None
            if habits is not None and any(journal.get(system, id) is None for id in ids):
                journal.forget(system)  # what a row was made with is known from the first one on alone
            for number, commit in enumerate(commits, start=1):
                if journal.get(system, commit.id) is None:
                    row, rows = replay_commit(
                        options, system, commit, former if system == PREVIOUS else side, trace, habits
                    )
                    journal.add(row, rows)
                progress(system, number, len(commits))
            if habits is not None:
                learned[system] = habits.of
        model = None if side is None else side.profile.model
    if options.save_trace is not None:
        measured = _measured(options, journal, [(system, commit.id) for system in systems for commit in commits])
        if measured:
            LatencyTrace(measured).save(options.save_trace)
    skipped: dict[str, int] = {}
    for commit in commits:
        for reason, files in commit.skipped.items():
            skipped[reason] = skipped.get(reason, 0) + files
    return {
        "repo": options.repo.name,
        "commits": len(commits),
        "stretches": sum(len(commit.stretches) for commit in commits),
        "skipped_files": skipped,
        "model": model,
        "accept_rule": str(options.rule),
        "client": "reuse" if options.reuse else "strict",
        "debounce_ms": options.debounce_ms,
        "with": list(options.with_),
        "without": list(options.without),
        "decide_ms": options.decide_ms,
        "growing": options.growing,
        "layout": options.layout,
        "latency": "trace" if trace is not None else "measured",
        "simulate": options.simulate,
        "oracle": options.oracle,
        "seed": options.seed,
        "learned": msgspec.to_builtins(learned) if options.learn else None,
        "systems": {
            system: summary([row for id in ids if (row := journal.get(system, id))], seed=options.seed)
            for system in systems
        },
    }


def _measured(options: ReplayOptions, journal: FinishedRows, rows: Sequence[tuple[str, str]]) -> list[TraceRow]:
    """The latencies of these rows, those that a former run made included. Raises EvalError where they were not kept."""
    kept = [journal.latencies(system, commit) for system, commit in rows if system in NEURAL]
    missing = sum(one is None for one in kept)
    if missing:
        told = f"{missing} rows in {options.out} were made before their latencies were kept"
        raise EvalError(f"--save-trace: {told}; give another --out, or leave --save-trace out")
    return [row for one in kept for row in one or ()]


def _commits(options: ReplayOptions) -> list[Commit]:
    """What is typed. Raises RepositoryError."""
    if options.repo.is_file():
        return load_recorded(options.repo)
    ids = commits_of(options.repo, options.commits, suffixes=options.suffixes)
    if not ids:
        raise RepositoryError(
            f"{options.repo}: no commits in {options.commits!r} that touch {', '.join(options.suffixes)}"
        )
    return [load_commit(options.repo, id, suffixes=options.suffixes) for id in ids]


def replay_commit(
    options: ReplayOptions,
    system: str,
    commit: Commit,
    side: LiveGateway | Simulator | None,
    trace: LatencyTrace | None,
    habits: Habits | None = None,
) -> tuple[CommitRow, list[TraceRow]]:
    """One system on one commit, on a clock that starts at zero."""
    if system in UNFILTERED:
        options = msgspec.structs.replace(options, with_=(*options.with_, "unsure"))
    seed = zlib.crc32(f"{options.seed}:{commit.id}".encode())
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        if not isinstance(loop, VirtualLoop):
            raise TypeError("the replay needs a virtual loop")
        gateway: ReplayGateway = ReplayGateway(None, loop)
        planner: Assembler | None = None
        if side is not None and system in NEURAL:
            planner = side.assembler(options.layout)
            if isinstance(side, Simulator) and options.oracle:
                predict = oracle_of(commit.stretches, options.oracle, options.seed, copy_line_of)
                gateway = side.gateway(loop, trace, random.Random(seed), predict)
            else:
                gateway = side.gateway(loop, trace, random.Random(seed))
        work = _work(options, system, commit, gateway, planner, loop, seed, habits)
        developer = runner.run(work)
    rows = gateway.measured if isinstance(gateway, MeasuredGateway) else []
    return row_of(system, commit.id, developer.tally, gateway.records), rows


async def _work(
    options: ReplayOptions,
    system: str,
    commit: Commit,
    gateway: ReplayGateway,
    planner: Assembler | None,
    loop: VirtualLoop,
    seed: int,
    habits: Habits | None,
) -> TypingDeveloper:
    root = options.repo.resolve().as_posix()
    local: LocalModel | None = _local(options, system, commit, root, habits)
    completion: CompletionFlow | None = None
    flow: Flow | None = None
    if system != "empty" and options.reuse:
        completion = flow = CompletionFlow(
            gateway,
            lambda _: planner,
            clock=loop.time,
            policy=Policy(
                PolicyOptions(
                    debounce_ms=options.debounce_ms,
                    in_comments=_everywhere(options.in_comments),
                    in_strings=_everywhere(options.in_strings),
                    switches=Switches().switched(on=options.with_, off=options.without),
                )
            ),
            cache=CompletionCache(),
            local=local,
            rng=random.Random(seed),
            habits=habits,
            options=FlowOptions(answer=AnswerRules.growing() if options.growing else AnswerRules()),
        )
    elif system != "empty":
        flow = StrictFlow(
            gateway,
            lambda _: planner,
            debounce_s=options.debounce_ms / 1000,
            local=local if system not in NEURAL else None,
        )
    developer = TypingDeveloper(
        flow,
        rule=options.rule,
        rng=random.Random(seed),
        decide_s=options.decide_ms / 1000,
        growing=options.growing and completion is not None,
    )
    if completion is not None:
        completion.grew.add(developer.grew)
    for stretch in commit.stretches:
        await developer.type(stretch, root=root, language=language_of(stretch.path))
    if completion is not None:
        await completion.close()
    return developer


def _everywhere(chosen: bool | None) -> dict[str, bool]:
    return {} if chosen is None else {"*": chosen}


@cache
def _table() -> CorpusTable | None:
    return shipped_table()


def _local(options: ReplayOptions, system: str, commit: Commit, root: str, habits: Habits | None) -> LocalModel | None:
    """The client's own candidate, knowing the files of the repository as they stood before the commit."""
    if system == "copy_line":
        return CopyLine()
    if system not in ("model", "unfiltered", "adaptive", PREVIOUS):
        return None
    model = AdaptiveModel(_table(), show=SHOW_RULE if habits is None else habits.rule)
    if options.repo.is_file():  # a recording knows no file but those that were opened
        return model
    for path, text in files_before(options.repo, commit.id, suffixes=options.suffixes).items():
        model.learn(f"file://{root}/{path}", text)
    return model
