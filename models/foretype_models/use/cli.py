"""`foretype use`: look, propose, fetch, try, switch."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from foretype_client.private_gateway.finding import default_state_dir
from foretype_context.terminal import console as plain_console
from foretype_context.terminal import say_json
from foretype_context.text.pasted import shell_line
from rich.console import Console
from rich.table import Table
from rich.text import Text

from foretype_models import artifacts, running_servers
from foretype_models.errors import UseError
from foretype_models.use import machine as machines
from foretype_models.use.catalogue import CATALOGUE, read_catalogue
from foretype_models.use.choose import ModelWish
from foretype_models.use.listing import Listing, MachineFindings, list_choices
from foretype_models.use.proposal import Proposal
from foretype_models.use.switch import Switched, switch
from foretype_models.watching import Lines, Shown, line


def use(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="WHAT",
            help="A model of the list, ./file.gguf, ollama:NAME, http://host:port/v1, or shipped. Without it: a proposal.",
            show_default=False,
        ),
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="Everything that there is to choose from.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Take what is proposed, without a question.")] = False,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Take it although a check says no; a wrong digest is always refused.")
    ] = False,
    accept_digest: Annotated[
        str | None,
        typer.Option("--accept-digest", metavar="SHA256", help="Of a file whose digest the catalogue does not know."),
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option("--tokenizer", metavar="FILE", help="tokenizer.json or GGUF file of a server's model."),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", metavar="NAME", help="Which of a server's models.")] = None,
    grammar: Annotated[
        str | None,
        typer.Option("--grammar", metavar="ID", help="Prompt grammar of a model whose vocabulary fits several."),
    ] = None,
    folder: Annotated[Path | None, typer.Option("--folder", metavar="DIR", help="Where downloads lie.")] = None,
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", metavar="DIR", help="Of the private gateway that gets the model.")
    ] = None,
    catalogue: Annotated[
        Path,
        typer.Option(
            "--catalogue",
            envvar="FORETYPE_CATALOGUE",
            metavar="FILE",
            help="A catalogue of your own.",
            show_default=False,
        ),
    ] = CATALOGUE,
    bench_s: Annotated[float, typer.Option("--bench-s", min=0.0, max=60.0, help="Seconds of measuring.")] = 10.0,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="OUT", help="Keep what is shown as a picture.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: one JSON object per line.")] = False,
) -> None:
    """Give every editor on this machine a good model: proposes one, fetches it, tries it, and switches to it."""
    # A picture shows what a terminal of 80 columns would.
    console = plain_console() if svg is None else plain_console(record=True, width=80, color_system="truecolor")
    with _told(as_json), _pictured(console, svg):
        state_dir = (state_dir or default_state_dir()).absolute()
        folder = (folder or artifacts.models_folder()).absolute()
        known = read_catalogue(catalogue)
        here = machines.look()
        if what is None:
            found = MachineFindings(machine=here, servers=running_servers.probe(), catalogue=known)
            listing, proposal = list_choices(found, folder, state_dir)
            if as_json:
                say_json(listing)
                return
            (_show_list if list_all else _show_proposal)(console, listing, proposal)
            what = None if list_all else _agreed(console, listing, yes=yes)
            if what is None:
                return
        asked = ModelWish(
            what=what,
            folder=folder,
            accept_digest=accept_digest,
            tokenizer=tokenizer,
            model=model,
            grammar=grammar,
            anyway=anyway,
            machine=here,
            catalogue=known,
        )
        if as_json:
            _said(switch(asked, state_dir, Lines(), bench_s=bench_s))
            return
        with Shown(console) as shown:
            done = switch(asked, state_dir, shown, bench_s=bench_s)
        _show_done(console, done)


def _agreed(console: Console, listing: Listing, *, yes: bool) -> str | None:
    """What is to be used, if the user agrees to the proposal."""
    row = next((row for row in listing.rows if row.proposed), None)
    if row is None:
        return None
    if row.current:
        console.print(f"\n{row.asked} is what your editors have already.")
        return None
    if yes:
        return row.asked
    if not (console.is_terminal and sys.stdin.isatty()):
        console.print(f"\nTo take it: {shell_line('foretype', 'use', row.asked)}", soft_wrap=True)
        return None
    return row.asked if typer.confirm(f"\nUse {row.asked}?", default=True) else None


def _show_proposal(console: Console, listing: Listing, proposal: Proposal) -> None:
    row = next((row for row in listing.rows if row.proposed), None)
    table = _grid()
    table.add_row("machine", listing.machine)
    table.add_row("now", listing.current if listing.good else "the shipped model: no good model is configured")
    running = [f"{row.asked} ({row.title})" for row in listing.rows if row.title.partition(":")[0] in _KINDS]
    table.add_row("runs already", "\n".join(running) or "no server of models on the usual ports")
    if row is None:
        table.add_row("proposed", f"nothing: {listing.why}")
    else:
        table.add_row("proposed", Text(row.asked, style="bold"))
        table.add_row("", row.title)
        table.add_row("", row.detail.partition(", about")[0] + (", here already" if row.here else ""))
        if proposal.entry is not None and proposal.entry.name == row.asked:
            if proposal.expected is not None:
                table.add_row("speed", str(proposal.expected))
            if proposal.entry.quality:
                table.add_row("quality", proposal.entry.quality)
            table.add_row("digest", f"SHA-256 {proposal.entry.sha256_from}")
        table.add_row("why", listing.why)
    for note in listing.notes:
        table.add_row("note", note)
    console.print(table)


_KINDS = ("ollama", "llama.cpp", "lm-studio", "vllm", "openai")


def _grid() -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _show_list(console: Console, listing: Listing, proposal: Proposal) -> None:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for row in listing.rows:
        mark = "*" if row.current else ">" if row.proposed else " "
        more = "; here already" if row.here and not row.current and row.asked != "shipped" else ""
        more += f"; {row.refused}" if row.refused else ""
        table.add_row(mark, row.asked, f"{row.title}: {row.detail}{more}")
    console.print(table)
    console.print(
        "\n* serves now   > proposed   foretype use NAME takes one; also ./file.gguf, ollama:NAME, http://host:port/v1",
        style="dim",
    )


def _show_done(console: Console, done: Switched) -> None:
    table = _grid()
    if done.verdict is not None:
        table.add_row("canary", str(done.verdict))
    if done.figures is not None:
        table.add_row("measured", str(done.figures))
    table.add_row("serves", Text(done.choice.name, style="bold"))
    when = "your editors have it at the next key" if done.replaced else "your editors have it from their next start on"
    undone = "; `foretype use shipped` undoes it" if done.choice.model else ""
    table.add_row("", f"{when}{undone}")
    console.print(table)


@contextmanager
def _pictured(console: Console, svg: Path | None) -> Generator[None]:
    yield
    if svg is not None:
        try:
            svg.write_text(console.export_svg(title="foretype use"), encoding="utf-8")
        except OSError as error:
            raise UseError(f"--svg: {svg} cannot be written ({error.strerror or error}); name another file") from error


def _said(done: Switched) -> None:
    figures = None if done.figures is None else str(done.figures)
    verdict = None if done.verdict is None else str(done.verdict)
    line(
        event="done",
        asked=done.choice.asked,
        model=done.choice.name,
        canary=verdict,
        measured=figures,
        replaced=done.replaced,
    )


@contextmanager
def _told(as_json: bool) -> Generator[None]:
    """One sentence on standard error, or a line of JSON; exit code 1."""
    try:
        yield
    except UseError as error:
        if as_json:
            line(event="failed", text=str(error))
        else:
            plain_console(stderr=True, soft_wrap=True).print(Text.assemble(("error:", "red"), f" {error}"))
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        plain_console(stderr=True).print(
            "stopped; what was downloaded stays, and the next `foretype use` goes on from there"
        )
        raise typer.Exit(130) from None
    except BrokenPipeError:  # who listened has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
