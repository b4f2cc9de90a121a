"""Who is told how far a long work has come: a person at a terminal, a program, or nobody."""

from __future__ import annotations

import sys
from typing import Any, Protocol, Self

from foretype_context.terminal import say_json
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


class Watcher(Protocol):
    """Is told what is being done, and how many bytes of it are done."""

    def doing(self, text: str) -> None: ...

    def progress(self, done: int, total: int | None) -> None: ...

    def note(self, text: str) -> None: ...


class Nobody:
    """Nobody is told."""

    def doing(self, text: str) -> None:
        pass

    def progress(self, done: int, total: int | None) -> None:
        pass

    def note(self, text: str) -> None:
        pass


class Shown:
    """What happens, as a line each, and a bar while bytes come."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("  "),
            BarColumn(bar_width=24),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(compact=True),
            console=console,
            transient=True,
            disable=console.record or not console.is_terminal,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._progress.stop()

    def doing(self, text: str) -> None:
        self._console.print(f"{text} …")
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None

    def note(self, text: str) -> None:
        self._console.print(f"note: {text}")

    def progress(self, done: int, total: int | None) -> None:
        if self._task is None:
            self._task = self._progress.add_task("")
        self._progress.update(self._task, completed=done, total=total)


class Lines:
    """What happens, for a program: a JSON object per line, of progress one per hundredth."""

    def __init__(self) -> None:
        self._told = -1

    def doing(self, text: str) -> None:
        self._told = -1
        line(event="doing", text=text)

    def note(self, text: str) -> None:
        line(event="note", text=text)

    def progress(self, done: int, total: int | None) -> None:
        percent = done * 100 // total if total else -1
        if percent > self._told:
            self._told = percent
            line(event="progress", done=done, total=total)


def line(**values: Any) -> None:
    """One JSON object on a line of its own, at once."""
    say_json(values)
    sys.stdout.flush()
