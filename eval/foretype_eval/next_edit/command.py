"""The command `foretype eval next-edit`."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from foretype_context.edits.pace import Eagerness

from foretype_eval.console import fail, print_table, progress_bars, tell
from foretype_eval.gateway_options import GatewayUrl, ProfileFile, TokenFile, gateway_options
from foretype_eval.next_edit.asked_model import AskedModel
from foretype_eval.next_edit.commits import SUFFIXES, CommitBounds
from foretype_eval.next_edit.offers import Rules
from foretype_eval.next_edit.run import ENGINES, on_cases, on_repositories
from foretype_eval.replay.answer_sources import LiveGateway


def next_edit(
    cases: Annotated[
        Path | None, typer.Option(help="Folder of scored fixtures, or one recording, in vscode-copilot-chat's formats.")
    ] = None,
    repo: Annotated[
        list[Path] | None, typer.Option(help="Git repository whose commits are typed a part of; may be given again.")
    ] = None,
    commits: Annotated[str, typer.Option(help="With --repo: number of newest commits, or a range A..B.")] = "50",
    holding: Annotated[
        list[CommitBounds] | None,
        typer.Option(help="With --repo: of these commits only those that contain such a change; may be given again."),
    ] = None,
    suffix: Annotated[
        list[str] | None, typer.Option(help="With --repo: file endings; default is every language with a syntax.")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="rules, or model: the rules, and a gateway's model where they are silent.")
    ] = "rules",
    eagerness: Annotated[
        Eagerness | None,
        typer.Option(help="With rules: which evidence is shown, as the editors' setting; default medium."),
    ] = None,
    gateway: GatewayUrl = None,
    token_file: TokenFile = None,
    profile: ProfileFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    wrong: Annotated[
        Path | None, typer.Option(help="Write what was offered and not wanted, with its lines, as JSON lines.")
    ] = None,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Measure next edits on cases whose next edit is known: how many are offered, right and wrong, and what that saves."""
    if (cases is None) == (not repo):
        fail("--cases, --repo: give one of both: fixtures or a recording, or a repository")
    if engine not in ENGINES:
        fail(f"--engine: {engine!r} is none of {', '.join(ENGINES)}")
    _check_engine(engine, eagerness, gateway, token_file, profile)
    with ExitStack() as stack:
        model = None
        if engine == "model":
            live = stack.enter_context(LiveGateway(gateway_options(gateway, token_file, profile=profile)))
            model = _model_of(live)
        progress = stack.enter_context(progress_bars())
        predictor = partial(Rules, eagerness or Eagerness.MEDIUM) if model is None else model.predictor
        if cases is not None:
            found = on_cases(cases, engine, predictor, seed=seed, progress=progress)
        else:
            found = on_repositories(
                repo or (),
                int(commits) if commits.isdigit() else commits,
                engine,
                predictor,
                suffixes=tuple(suffix or SUFFIXES),
                seed=seed,
                progress=progress,
                holding=frozenset(holding or ()),
            )
        if model is not None:
            answers = dict(sorted(model.answers.items()))
            found.result["model"] = {"name": model.name, "answers": answers}
    if wrong is not None:
        wrong.write_bytes(b"".join(msgspec.json.encode(asdict(one)) + b"\n" for one in found.mistakes))
    tell(found.result, _print, as_json=as_json)


def _check_engine(
    engine: str, eagerness: Eagerness | None, gateway: str | None, token_file: Path | None, profile: Path | None
) -> None:
    if engine == "rules":
        if gateway is not None or token_file is not None or profile is not None:
            fail("--gateway, --token-file, --profile: the rules ask nobody; leave them out, or say --engine model")
    elif eagerness not in (None, Eagerness.HIGH):
        fail(f"--eagerness: a model is shown at `high` alone, not at `{eagerness}`; leave it out")
    elif gateway is None and profile is None:
        fail("--engine model: name a gateway that has one with --gateway, or the profile of one with --profile")


def _model_of(live: LiveGateway) -> AskedModel:
    wanted = live.profile.next_edit
    if wanted is None:
        fail("--engine model: this gateway names no model of next edits; set model.next_edit or [pool.next_edit] there")
    return AskedModel(live.profile.model, wanted, live.next_edit)


def _print(result: dict[str, Any]) -> None:
    counted, shares = ("opportunities", "shown", "right", "wrong"), ("precision", "recall")

    def cells(name: str, row: dict[str, Any]) -> list[str | None]:
        ci, wrong = row["ci"], row["wrong_per_1000_keys"]
        return [
            name,
            *(f"{row[key]:,}" for key in counted),
            *(_share(row[key], ci[key]) for key in shares),
            None if wrong is None else f"{wrong:.2f}{_ends(ci['wrong_per_1000_keys'], '.2f')}",
            f"{row['keys_saved']:,}",
            f"{row['ms']['p50']} / {row['ms']['p99']}",
        ]

    rows: list[list[str | None]] = []
    for name, row in {result["engine"]: result, **result["floors"]}.items():
        parts = [part for part in ("renames", "signatures") if part in row and row[part]["opportunities"]]
        rows += [cells(name, row), *(cells(f"  {part}", row[part]) for part in parts)]
    columns = ("", *counted, *shares, "wrong / 1,000 keys", "keys saved", "ms p50 / p99")
    print_table(f"{result['source']}: {result['kind']}", columns, rows)


def _share(value: float | None, ci: list[float] | None) -> str:
    return "–" if value is None else f"{value:.1%}{_ends(ci, '.0%')}"


def _ends(ci: list[float] | None, form: str) -> str:
    return "" if ci is None else f" ({ci[0]:{form}} to {ci[1]:{form}})"
