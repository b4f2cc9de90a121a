"""What `foretype demo` shows: the file around the cursor, the ghost text in it, and the figures below."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from foretype_context.syntax.document import Snapshot
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from foretype_client.commands.demo_typist import Typist
from foretype_client.flow.suggestion import FlowStatus, Origin, Suggestion

_ABOVE, _BELOW = 9, 6
_GHOST = "italic bright_black"


@dataclass(slots=True)
class DemoFigures:
    """What was measured: milliseconds of every suggestion that was shown, by origin, and of every first token."""

    shown_ms: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    ttft_ms: list[float] = field(default_factory=list[float])

    def add(self, suggestion: Suggestion) -> None:
        self.shown_ms.setdefault(suggestion.source, []).append(suggestion.timings_ms.get("shown", 0.0))
        if suggestion.source is Origin.NETWORK and (ttft_ms := suggestion.timings_ms.get("ttft")) is not None:
            self.ttft_ms.append(ttft_ms)

    @property
    def shown(self) -> int:
        return sum(map(len, self.shown_ms.values()))


def frame(
    title: str,
    snapshot: Snapshot,
    offset: int,
    suggestion: Suggestion | None,
    figures: DemoFigures,
    status: FlowStatus,
    accepted_chars: int,
    typed_chars: int,
) -> RenderableType:
    """One picture of the screen."""
    return Group(
        Panel(_code(snapshot, offset, suggestion), title=title, title_align="left", border_style="blue"),
        _line(suggestion, figures, status, accepted_chars, typed_chars),
    )


def _code(snapshot: Snapshot, offset: int, suggestion: Suggestion | None) -> Text:
    cursor_line = snapshot.line_of(offset)
    first = max(0, cursor_line - _ABOVE)
    last = min(snapshot.line_count - 1, cursor_line + _BELOW)
    begin, end = snapshot.line_start(first), snapshot.line_end(last)
    window = snapshot.text[begin:end]
    code = Syntax("", snapshot.language, theme="ansi_dark").highlight(window)[: len(window)]
    at = offset - begin
    ghost = "" if suggestion is None else suggestion.text
    head, _, rest = ghost.partition("\n")
    with_ghost = Text.assemble(
        code[:at],
        ("▏", "bold white"),
        (head, _GHOST),
        code[at : snapshot.line_end(cursor_line) - begin],
        (f"\n{rest}" if rest else "", _GHOST),
        code[snapshot.line_end(cursor_line) - begin :],
    )
    lines = with_ghost.split("\n", allow_blank=True)
    shown = Text(no_wrap=True, overflow="crop")
    ghost_lines = rest.count("\n") + 1 if rest else 0
    for index, line in enumerate(lines[: _ABOVE + _BELOW + 1]):
        is_ghost = cursor_line < first + index <= cursor_line + ghost_lines
        number = first + index + 1 - (min(ghost_lines, max(0, first + index - cursor_line)))
        shown.append("     " if is_ghost else f"{number:4} ", style="dim")
        shown.append_text(line)
        shown.append("\n")
    missing = _ABOVE + _BELOW + 1 - len(lines)
    shown.append("\n" * max(0, missing))
    shown.rstrip() if missing <= 0 else None
    return shown


def _line(
    suggestion: Suggestion | None, figures: DemoFigures, status: FlowStatus, accepted_chars: int, typed_chars: int
) -> Text:
    origin = "–" if suggestion is None else f"{suggestion.source} {suggestion.timings_ms.get('shown', 0.0):.0f} ms"
    shown = [
        f"{origin:<16}",
        f"first token {median(figures.ttft_ms):.0f} ms" if figures.ttft_ms else "first token –",
        f"{accepted_chars}/{accepted_chars + typed_chars} characters accepted",
    ]
    asked = [
        f"{status.requests} requests",
        f"{status.cache_hits} from cache",
        f"{_share(status.cached_share)} of prompt cached",
    ]
    return Text("\n".join(" │ ".join(parts) for parts in (shown, asked)), style="cyan")


def summary(figures: DemoFigures, status: FlowStatus, typist: Typist) -> Table:
    """The figures of the whole run."""
    accepted, typed = typist.accepted_chars, typist.typed_chars
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_row("suggestions shown", str(figures.shown))
    for origin, times_ms in sorted(figures.shown_ms.items()):
        table.add_row(f"  {origin}", f"{len(times_ms)}, asked to shown {_ms(times_ms)}")
    table.add_row("first token after sending", _ms(figures.ttft_ms))
    table.add_row("requests sent", f"{status.requests} for {status.asked} keys, {status.cancelled} given up")
    table.add_row("prompt tokens cached", _share(status.cached_share))
    table.add_row("accepted", f"{typist.accepts} times, {accepted} of {accepted + typed} characters")
    if typist.keys_without:
        saved = 1 - typist.keys / typist.keys_without
        table.add_row("keys", f"{typist.keys} instead of {typist.keys_without}, {saved:.0%} saved")
    return table


def _ms(times_ms: list[float]) -> str:
    if not times_ms:
        return "–"
    worst = sorted(times_ms)[min(len(times_ms) - 1, int(0.95 * len(times_ms)))]
    return f"p50 {median(times_ms):.0f} ms, p95 {worst:.0f} ms"


def _share(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"
