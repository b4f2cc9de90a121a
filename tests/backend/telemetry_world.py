"""Events as clients send them, and stores to put them into."""

from pathlib import Path
from typing import Any

from foretype_backend.config.settings import TelemetryConfig
from foretype_backend.telemetry.schema import COLUMNS_OF, EVENT_AT, EVENT_COLUMNS
from foretype_backend.telemetry.sink import TelemetrySink

DAY_MS = 86_400_000
NOON_MS = 1_790_078_400_000  # 2026-09-22 12:00 UTC


class Clock:
    """Monotonic seconds and Unix milliseconds that stand still."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.wall_ms = NOON_MS


def event(kind: str, seq: int, /, **fields: Any) -> dict[str, Any]:
    base = {"event": kind, "session": "s1", "seq": seq, "t_ms": NOON_MS, "at_ms": float(seq), "language": "python"}
    return {**base, **fields}


def opportunity(seq: int, **fields: Any) -> dict[str, Any]:
    given = {"id": f"o{seq}", "document": "d1", "trigger": "automatic", "caret": "line_end", "outcome": "network"}
    return event("opportunity", seq, **(given | fields))


def display(seq: int, shown: str, visible_ms: float, **fields: Any) -> dict[str, Any]:
    given = {
        "id": f"i{seq}",
        "shown": shown,
        "served_from": "network",
        "display_source": "inferred",
        "visible_ms": visible_ms,
        "characters": 10,
        "lines": 1,
        "end": "diverged",
    }
    return event("display", seq, **(given | fields))


def accept(seq: int, shown: str, characters: int, kind: str = "full", /, **fields: Any) -> dict[str, Any]:
    given = {"id": f"i{seq}", "shown": shown, "kind": kind, "how": "reported", "characters": characters, "lines": 1}
    return event("accept", seq, **(given | fields))


def survive(seq: int, shown: str, age_s: int, arc: int, levenshtein: int, **fields: Any) -> dict[str, Any]:
    given = {
        "id": f"i{seq}",
        "shown": shown,
        "age_s": age_s,
        "characters": 10,
        "length_now": 10,
        "arc": arc,
        "levenshtein": levenshtein,
        "fourgram": 0.5,
    }
    return event("survive", seq, **(given | fields))


def sample(seq: int, text: str, **fields: Any) -> dict[str, Any]:
    given = {"id": f"i{seq}", "shown": f"i{seq}", "prefix": text, "suffix": "", "suggestion": "x", "accepted": True}
    return event("sample", seq, **(given | fields))


def sink_in(directory: Path, clock: Clock | None = None, **config: Any) -> TelemetrySink:
    clock = clock or Clock()
    return TelemetrySink(TelemetryConfig(**config), directory, clock=lambda: clock.now_s, wall_ms=lambda: clock.wall_ms)


def columns(row: tuple[Any, ...]) -> dict[str, Any]:
    """What stands in the table of a row of any kind."""
    return dict.fromkeys(EVENT_COLUMNS) | dict(zip(COLUMNS_OF[row[EVENT_AT]], row, strict=True))


def files_with(directory: Path, needle: bytes) -> list[str]:
    """Every file below `directory` whose bytes or path hold `needle`."""
    return [
        str(path.relative_to(directory))
        for path in directory.rglob("*")
        if needle in str(path).encode() or (path.is_file() and needle in path.read_bytes())
    ]
