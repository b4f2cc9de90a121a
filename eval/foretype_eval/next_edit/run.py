"""One run over fixtures, a recording or a repository: the engine and both floors, on the same cases."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from foretype_eval.errors import RecordingError, RepositoryError
from foretype_eval.next_edit.baselines import CopiedEdit, ReplacedWords
from foretype_eval.next_edit.commits import CommitBounds, commit_cases, typed_commit, typed_named
from foretype_eval.next_edit.fixtures import is_fixtures, load_fixtures, tried
from foretype_eval.next_edit.offers import Predictor
from foretype_eval.next_edit.recorded import Session
from foretype_eval.next_edit.tally import ClusterTally, WrongOffer, figures
from foretype_eval.replay.edit_recording import load_recording

ENGINES: Final = ("rules", "model")
_FLOORS: Final[Mapping[str, Callable[[], Predictor]]] = {"copy": CopiedEdit, "replace": ReplacedWords}

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class NextEditRun:
    """What one run of `foretype eval next-edit` found.

    Attributes:
        result: what `--json` prints.
        mistakes: what the engine offered and nobody wanted.
    """

    result: dict[str, Any]
    mistakes: tuple[WrongOffer, ...]


def on_cases(
    path: Path, engine: str, predictor: Callable[[], Predictor], *, seed: int, progress: Progress
) -> NextEditRun:
    """A folder of scored fixtures, or one recording.

    Args:
        engine: what `predictor` makes is called.

    Raises:
        RecordingError: it is neither, or broken; the message says what was looked for.
        OSError: it cannot be read.
    """
    if not path.exists():
        raise RecordingError(
            f"--cases {path}: not there; give a folder of scored fixtures, or the file of one recording"
        )
    if path.is_dir() and not is_fixtures(path):
        raise RecordingError(
            f"--cases {path}: no folder with `recording.w.json` and `scoredEdits.w.json` in it; "
            "give a folder of such fixtures, or the file of one recording"
        )
    return (
        _fixtures(path, engine, predictor, seed, progress)
        if path.is_dir()
        else _recording(path, engine, predictor, seed, progress)
    )


def on_repositories(
    repos: Sequence[Path],
    selection: str | int,
    engine: str,
    predictor: Callable[[], Predictor],
    *,
    suffixes: Sequence[str],
    seed: int,
    progress: Progress,
    holding: Collection[CommitBounds] = (),
) -> NextEditRun:
    """Commits of repositories, as many of each.

    Args:
        holding: only those of them that contain one of these.

    Raises:
        RepositoryError: no repository, no such commits, or none with files of these endings.
    """
    whole = defaultdict[str, list[ClusterTally]](list)
    named = defaultdict[tuple[str, str], list[ClusterTally]](list)
    skipped = Counter[str]()
    count = searched = 0
    for repo in repos:
        number = 0
        for case, number, total in commit_cases(repo, selection, suffixes, holding):
            progress(repo.name, number, total)
            if case is None:
                continue
            count += 1
            skipped += case.skipped
            for system, make in _systems(engine, predictor).items():
                whole[system].append(typed_commit(make, case))
                for kind, tally in typed_named(make, case):
                    named[system, kind].append(tally)
        if not number:
            raise RepositoryError(
                f"--repo {repo}: none of the commits that were asked for changed a file ending in {', '.join(suffixes)}; "
                "raise --commits, or name other endings with --suffix"
            )
        searched += number
    if not count:
        raise RepositoryError(
            f"--holding {', '.join(holding)}: none of {searched} commits contains one; raise --commits, or name other endings"
        )
    kinds = sorted({kind for _, kind in named})
    parts = {
        "renames": [kind for kind in kinds if kind != "signature"],
        "signatures": [kind for kind in kinds if kind == "signature"],
    }

    def part(system: str, of: Sequence[str]) -> dict[str, Any]:
        return figures([tally for kind in of for tally in named[system, kind]], seed=seed)

    def all_of(system: str) -> dict[str, Any]:
        return {
            **figures(whole[system], seed=seed),
            **{name: part(system, of) for name, of in parts.items()},
            "by_kind": {kind: part(system, [kind]) for kind in kinds},
        }

    head = {
        "kind": "commits",
        "source": ", ".join(repo.name for repo in repos),
        "commits": count,
        "searched": searched,
        "skipped": dict(sorted(skipped.items())),
    }
    mistakes = [
        one for tally in (*whole[engine], *(t for k in kinds for t in named[engine, k])) for one in tally.mistakes
    ]
    return NextEditRun(_result(head, engine, all_of), tuple(mistakes))


def _fixtures(
    path: Path, engine: str, predictor: Callable[[], Predictor], seed: int, progress: Progress
) -> NextEditRun:
    fixtures = load_fixtures(path)
    tallies = defaultdict[str, list[ClusterTally]](list)
    scores = defaultdict[str, dict[str, str]](dict)
    for number, fixture in enumerate(fixtures, 1):
        progress("fixtures", number, len(fixtures))
        for system, make in _systems(engine, predictor).items():
            tally, scores[system][fixture.name] = tried(fixture, make())
            tallies[system].append(tally)

    def all_of(system: str) -> dict[str, Any]:
        counts = Counter(scores[system].values())
        return {
            **figures(tallies[system], seed=seed),
            "scores": dict(sorted(counts.items())),
            "fixtures": scores[system],
        }

    head = {"kind": "fixtures", "source": path.name, "cases": len(fixtures)}
    return NextEditRun(_result(head, engine, all_of), tuple(one for tally in tallies[engine] for one in tally.mistakes))


def _recording(
    path: Path, engine: str, predictor: Callable[[], Predictor], seed: int, progress: Progress
) -> NextEditRun:
    recording = load_recording(path)
    sessions = dict[str, Session]()
    systems = _systems(engine, predictor)
    for number, (system, make) in enumerate(systems.items(), 1):
        sessions[system] = Session(recording, make())
        sessions[system].run()
        progress("systems", number, len(systems))

    def all_of(system: str) -> dict[str, Any]:
        session = sessions[system]
        return {**figures([*session.tallies.values()], seed=seed), "at_opportunities": session.at_opportunities()}

    events = recording.events
    head = {"kind": "recording", "source": path.name, "seconds": round(events[-1].time_s - events[0].time_s)}
    mistakes = tuple(one for tally in sessions[engine].tallies.values() for one in tally.mistakes)
    return NextEditRun(_result(head, engine, all_of), mistakes)


def _systems(engine: str, predictor: Callable[[], Predictor]) -> dict[str, Callable[[], Predictor]]:
    return {engine: predictor, **_FLOORS}


def _result(head: dict[str, Any], engine: str, all_of: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """The engine's figures on top, what it is measured beside under `floors`."""
    return {**head, "engine": engine, **all_of(engine), "floors": {name: all_of(name) for name in _FLOORS}}
