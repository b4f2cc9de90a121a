"""The command `foretype bench all`."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from foretype_context.errors import GitError
from foretype_context.folder.git import repository_at
from foretype_context.terminal import console, say
from foretype_eval.console import fail, print_json, progress_bars
from foretype_eval.latency.report import machine
from rich.table import Table

from foretype_lab.all_rows.conductor import OURS, behind, conduct
from foretype_lab.all_rows.page import Measured, missed_without_record, page_with_rows
from foretype_lab.all_rows.sides import HERE, HERE_SIDE, checked_out, run_bench
from foretype_lab.all_rows.table import GATE_ROUNDS, Bench, load_table
from foretype_lab.errors import BenchFailedError

_MEASUREMENTS = HERE / "docs" / "measurements"
_COLUMNS = ("value", "unit", "against", "ratio", "low", "high", "aim", "met", "record")


def all_rows(
    against: Annotated[
        str | None, typer.Option(metavar="COMMIT", help="Measure that commit too, in turns, and give the ratios.")
    ] = None,
    gate: Annotated[
        bool,
        typer.Option(
            "--gate",
            help="The hot path alone, in ten minutes; status 1 where a row has no figure, or is a tenth behind --against in every round.",
        ),
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME,…", help="Benches or rows of these names alone; may be repeated.")
    ] = None,
    recording: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="*.recording.w.json for the rows that replay one.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Runs of each bench, in place of the table's.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Written after each bench, beside the rows it has; one with a value there is not run again."),
    ] = None,
    table: Annotated[Path | None, typer.Option(exists=True, help="Another table of rows.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Every figure that is promised, with its aim: measured here, and beside a commit."""
    try:
        everything = load_table(table) if table else load_table()
        benches = _wanted(everything, only or (), gate=gate)
        if rounds is not None or gate:
            most = rounds or GATE_ROUNDS
            benches = [msgspec.structs.replace(one, rounds=rounds or min(one.rounds, most)) for one in benches]
        with ExitStack() as stack:
            # Who ends this ends the bench that runs, too.
            usual = signal.signal(signal.SIGTERM, signal.default_int_handler)
            stack.callback(signal.signal, signal.SIGTERM, usual)
            other = HERE_SIDE if against is None else stack.enter_context(checked_out(against))
            facts: dict[str, Any] = {"commit": _commit(), "against": other.commit}

            def ask(bench: Bench, side: str) -> dict[str, Any]:
                given = {"recording": recording}
                if side == OURS or bench.beside:
                    return run_bench(bench, bench.command if side == OURS else bench.beside, HERE_SIDE, given)
                return run_bench(bench, bench.command, other, given)

            before = _kept(out, facts)
            rows, found = {row["name"]: row for row in before.get("rows", ())}, facts
            progress = stack.enter_context(progress_bars())
            began = time.monotonic() - 60 * before.get("minutes", 0.0)
            for number, some in enumerate(conduct(benches, ask, against=against is not None, kept=rows), 1):
                rows |= {row["name"]: row for row in some}
                at = datetime.now(UTC).isoformat(timespec="minutes")
                found = {**facts, "at": at, "machine": machine(), "minutes": round((time.monotonic() - began) / 60, 1)}
                found["rows"] = [rows[row.name] for bench in everything for row in bench.row if row.name in rows]
                if out is not None:
                    out.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
                progress("benches", number, len(benches))
    except (BenchFailedError, GitError, msgspec.MsgspecError, OSError) as error:
        fail(str(error))
    if as_json:
        print_json(found)
    else:
        _print(found)
    if gate and (said := behind(benches, rows)):
        say("\n".join(said), err=True)
        raise typer.Exit(1)


def rows_page(
    results: Annotated[
        list[Path] | None, typer.Argument(help="Output of `bench all --json`; default all of docs/measurements.")
    ] = None,
    page: Annotated[
        list[Path] | None,
        typer.Option(help="Whose tables are written; default README.md and docs/measurements/index.md."),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail where a page is another.")] = False,
    table: Annotated[Path | None, typer.Option(exists=True, help="Another table of rows.")] = None,
) -> None:
    """Write the tables of pages from what `bench all` measured."""
    try:
        benches = load_table(table) if table else load_table()
        paths = results or sorted(_MEASUREMENTS.glob("*.json"))
        files = [msgspec.json.decode(path.read_bytes(), type=Measured) for path in paths]
        files, paths = map(list, zip(*sorted(zip(files, paths, strict=True), key=lambda it: it[0].at), strict=True))
        if nameless := missed_without_record(benches, files):
            fail(f"missed, and no record names the limit: {'; '.join(nameless)}")
        for one in page or [HERE / "README.md", _MEASUREMENTS / "index.md"]:
            names = [Path(os.path.relpath(path, one.parent)).as_posix() for path in paths]
            before = one.read_text("utf-8")
            link = partial(_relative, start=one.resolve().parent)
            text = page_with_rows(before, benches, dict(zip(names, files, strict=True)), link=link)
            if check and text != before:
                fail(f"{one} is not what these files make of it: run `foretype bench rows-page`")
            if text != before:
                one.write_text(text, "utf-8")
    except (BenchFailedError, msgspec.MsgspecError, OSError) as error:
        fail(str(error))


def _relative(path: str, *, start: Path) -> str:
    return Path(os.path.relpath(HERE / path, start)).as_posix()


def _wanted(benches: Sequence[Bench], only: Sequence[str], *, gate: bool) -> list[Bench]:
    if gate:
        benches = [bench for bench in benches if bench.gate]
    known = {bench.name for bench in benches} | {row.name for bench in benches for row in bench.row}
    # A row's name may have a comma in it.
    names = {name.strip() for one in only for name in ([one] if one in known else one.split(",")) if name.strip()}
    if unknown := names - known:
        fail(
            f"--only {', '.join(sorted(unknown))}: there are {', '.join(bench.name for bench in benches)}, and their rows"
        )
    if not names:
        return list(benches) or fail("the table has no bench")
    wanted: list[Bench] = []
    for bench in benches:
        rows = bench.row if bench.name in names else tuple(row for row in bench.row if row.name in names)
        if rows:
            wanted.append(msgspec.structs.replace(bench, row=rows))
    return wanted


def _commit() -> str | None:
    found = repository_at(HERE)
    return None if found is None else found.commit()


def _kept(out: Path | None, facts: dict[str, Any]) -> dict[str, Any]:
    """What an earlier run of the same commits has written."""
    if out is None or not out.exists():
        return {}
    before: dict[str, Any] = msgspec.json.decode(out.read_bytes(), type=dict[str, Any])
    if any(before.get(name) != value for name, value in facts.items()):
        fail(f"{out} holds rows of other commits; name another file, or remove it")
    return before


def _print(found: dict[str, Any]) -> None:
    screen = Table("row", *_COLUMNS, title=f"{found['commit']} beside {found['against']}", title_justify="left")
    for row in found["rows"]:
        screen.add_row(row["name"], *("–" if row[name] is None else str(row[name]) for name in _COLUMNS))
    console().print(screen)
