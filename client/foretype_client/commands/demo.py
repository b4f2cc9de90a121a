"""`foretype demo [FILE]`: a real file typed in the terminal, with ghost text from the real gateway, and what it took."""

from __future__ import annotations

import asyncio
import contextlib
import io
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final

import foretype_wire.errors
import typer
from foretype_context.syntax.document import Document
from foretype_context.terminal import console as plain_console
from foretype_wire.errors import GatewayGoneError
from foretype_wire.workspace import workspace_of
from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from foretype_client.client import Client, ClientOptions, open_client
from foretype_client.commands.demo_screen import DemoFigures, frame, summary
from foretype_client.commands.demo_typist import Typist, region_of
from foretype_client.commands.shared import (
    GatewayOption,
    ModelOption,
    StateDirOption,
    TokenFileOption,
    client_options,
    errors_told,
)
from foretype_client.errors import InputError
from foretype_client.flow.suggestion import Suggestion
from foretype_client.locations import read_source, shown_path
from foretype_client.policy.switches import Switches
from foretype_client.policy.trigger import PolicyOptions
from foretype_client.private_gateway.finding import FETCH_REMEDY

_READING_S: Final = 0.35
"""How long the demo's developer looks at a suggestion before Tab, where there is somebody to watch."""
_LINE_PAUSE_S: Final = 0.5
"""How long they think at the beginning of a line, and half as long after a word."""
_PATIENCE_S: Final = 5.0
"""At `--speed 0`: how long to wait for one suggestion."""
_SVG_COLUMNS: Final = 110


@dataclass(slots=True)
class _Run:
    """One demo under way."""

    title: str
    client: Client
    typist: Typist
    figures: DemoFigures = field(default_factory=DemoFigures)
    suggestion: Suggestion | None = None
    picture: RenderableType | None = None
    picture_chars: int = 0
    only_when_asked: bool = False
    """The model is shown to nobody who does not ask, so that a file which repeats nothing has nothing to show."""

    def frame(self) -> RenderableType:
        typist = self.typist
        return frame(
            self.title,
            typist.snapshot,
            typist.offset,
            self.suggestion,
            self.figures,
            self.client.flow.status(),
            typist.accepted_chars,
            typist.typed_chars,
        )

    def show(self, suggestion: Suggestion) -> None:
        self.suggestion = suggestion
        self.figures.add(suggestion)
        wanted = self.typist.wanted(suggestion)
        chars = len(suggestion.text) + (1000 if wanted == suggestion.text else 10 * len(wanted))
        if chars > self.picture_chars:
            self.picture, self.picture_chars = self.frame(), chars


def demo(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="Default: a module of Foretype itself.")] = None,
    keys: Annotated[int, typer.Option("--keys", min=1, metavar="N", help="Stop after so many keys.")] = 300,
    speed: Annotated[
        float, typer.Option("--speed", min=0.0, metavar="KEYS", help="Keys per second; 0 waits for each suggestion.")
    ] = 12.0,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="OUT", help="Keep the best picture as SVG.")] = None,
    unsure: Annotated[
        bool,
        typer.Option("--unsure", help="Show what the model says even where it is less sure than its profile asks for."),
    ] = False,
    gateway: GatewayOption = None,
    token_file: TokenFileOption = None,
    model: ModelOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Type part of a real file with live ghost text, with the settings of an editor; print keys saved and latencies."""
    with errors_told():
        path = file or Path(foretype_wire.errors.__file__)
        text = read_source(path)
        if not text.strip():
            raise InputError(f"{path} is empty: there is nothing to type")
        options = client_options("demo", gateway, token_file, model, state_dir)
        # As in an editor: the neighbours of the file are known. The file itself is what is typed, never what is on disk.
        policy = PolicyOptions(switches=Switches(unsure=unsure, spare=False))  # its user asked to see it now
        options = replace(options, workspaces=[workspace_of(path.absolute().parent)], policy=policy)
        console = plain_console()
        run = asyncio.run(_demo(path, text, keys, speed, options, console))
        if svg is not None:
            _write_svg(run, svg)
            console.print(f"picture: {svg}")
        if run.figures.shown == 0:
            if run.only_when_asked:
                console.print("nothing was sure enough to be shown; `--unsure` shows all that the model says")
                return
            console.print("no suggestion was shown; `foretype doctor` says why", style="red")
            raise typer.Exit(1)


async def _demo(path: Path, text: str, keys: int, speed: float, options: ClientOptions, console: Console) -> _Run:
    absolute = await asyncio.to_thread(path.absolute)
    document = Document(absolute.as_uri(), text, path=shown_path(absolute))
    async with open_client(options) as client:
        with (
            console.status("waiting for the gateway and its model …")
            if console.is_terminal
            else contextlib.nullcontext()
        ):
            try:
                await client.ready(options.start_timeout_s)
            except GatewayGoneError as error:
                if FETCH_REMEDY not in str(error):
                    raise
                console.print(f"{error}. Until then only what your files say is suggested:", markup=False)
        profile = client.session.profile
        typist = Typist(document, *region_of(text, keys))
        model_name = "" if profile is None else f" · {profile.model}"
        run = _Run(f"foretype demo · {document.path}{model_name}", client, typist)
        run.only_when_asked = not options.policy.switches.unsure and (
            profile is not None and profile.min_mean_logprob.shows_nothing
        )
        client.flow.document_opened(typist.snapshot)
        if console.is_terminal:
            with Live(console=console, auto_refresh=False) as live:
                await _type(run, keys, speed, lambda: live.update(run.frame(), refresh=True))
        else:
            await _type(run, keys, speed, _PlainProgress(run, console))
        status = client.flow.status()
        console.print(summary(run.figures, status, typist))
    return run


class _PlainProgress:
    """Without a terminal: one line per suggestion that was new."""

    def __init__(self, run: _Run, console: Console) -> None:
        self._run = run
        self._console = console
        self._last = ""

    def __call__(self) -> None:
        suggestion = self._run.suggestion
        if suggestion is None or suggestion.id == self._last:
            return
        self._last = suggestion.id
        wanted = self._run.typist.wanted(suggestion)
        taken = "Tab" if wanted == suggestion.text else "part" if wanted else ""
        shown_ms = suggestion.timings_ms.get("shown", 0.0)
        first_line = suggestion.text.partition("\n")[0]
        self._console.print(
            Text(
                f"key {self._run.typist.keys:4}  {shown_ms:6.0f} ms  {suggestion.source:<11} {taken:<4}  {first_line}"
            ),
            soft_wrap=True,
        )


async def _type(run: _Run, keys: int, speed: float, refresh: Callable[[], None]) -> None:
    """Press keys until the region is typed or `keys` were pressed."""
    flow, typist = run.client.flow, run.typist
    while typist.keys < keys:
        asked = asyncio.ensure_future(flow.suggest(typist.snapshot, typist.offset))
        wait_s = _PATIENCE_S if speed == 0 else _pause_s(typist, speed)
        refresh()
        began = time.monotonic()
        await asyncio.wait([asked], timeout=wait_s)
        if asked.done() and (suggestion := asked.result()) is not None:
            run.show(suggestion)
            flow.shown(suggestion.id)
            refresh()
        if (step := typist.next_step(run.suggestion)) is None:
            asked.cancel()
            break
        if speed > 0:
            pause_s = _READING_S if step.accepted is not None else wait_s - (time.monotonic() - began)
            await asyncio.sleep(max(0.0, pause_s))
        change = typist.apply(step, flow.clock())
        run.suggestion = None
        if step.accepted is not None and step.whole:
            flow.accepted(step.accepted.id)
        elif step.accepted is not None:
            flow.partially_accepted(step.accepted.id, len(step.text))
        flow.document_changed(change)
        await asyncio.wait([asked])  # the change superseded it, so it answers now
    refresh()


def _pause_s(typist: Typist, speed: float) -> float:
    """Seconds before the next key: people type words in one go and think between them."""
    line = typist.snapshot.text[: typist.offset].rpartition("\n")[2]
    if not line.strip():
        return _LINE_PAUSE_S
    return 1 / speed if line[-1].isalnum() or line[-1] == "_" else max(1 / speed, _LINE_PAUSE_S / 2)


def _write_svg(run: _Run, path: Path) -> None:
    console = plain_console(
        record=True, file=io.StringIO(), width=_SVG_COLUMNS, force_terminal=True, color_system="truecolor"
    )
    console.print(run.picture or run.frame())
    try:
        path.write_text(console.export_svg(title="foretype demo"), encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error}") from error
