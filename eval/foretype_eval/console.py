"""What both command groups share: JSON on standard output, progress and errors on standard error."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Final, NoReturn

import typer
from foretype_context.terminal import console, say_json
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

stderr = console(stderr=True)
_PIPE_COLUMNS: Final = 140


def print_json(value: dict[str, Any]) -> None:
    """One object, one line end, nothing else: the contract of `--json`."""
    say_json(value, indent=2)


def tell(result: dict[str, Any], shown: Callable[[dict[str, Any]], object], *, as_json: bool) -> None:
    """A command's result: as JSON, or as `shown` prints it for people."""
    (print_json if as_json else shown)(result)


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    words: Sequence[str] = (),
    caption: str = "",
) -> None:
    """For people: rows of figures. The first column and `words` begin at the left; None is a dash."""
    table = Table(title=title or None, title_justify="left", caption=caption or None)
    for place, column in enumerate(columns):
        left = place == 0 or column in words
        table.add_column(column, justify="left" if left else "right", no_wrap=place == 0)
    for row in rows:
        table.add_row(*("–" if cell is None else str(cell) for cell in row))
    screen = console()
    # In a pipe there is no width to respect, and half a figure is none.
    (screen if screen.is_terminal else console(width=_PIPE_COLUMNS)).print(table)


def fail(message: str) -> NoReturn:
    """Say what is wrong and what to do, and leave with status 2."""
    # Unwrapped: a path that is cut in two cannot be copied.
    stderr.print(Text.assemble(("error:", "bold red"), f" {message}"), soft_wrap=True)
    raise typer.Exit(2)


@contextlib.contextmanager
def progress_bars() -> Generator[Callable[[str, int, int], None]]:
    """A bar per named step on standard error; nothing if that is not a terminal."""
    bars = Progress(
        TextColumn("{task.description:<14}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=stderr,
        disable=not stderr.is_terminal,
    )
    tasks: dict[str, Any] = {}

    def advance(step: str, done: int, total: int) -> None:
        if step not in tasks:
            tasks[step] = bars.add_task(step, total=total)
        bars.update(tasks[step], completed=done, total=total)

    with bars:
        yield advance
