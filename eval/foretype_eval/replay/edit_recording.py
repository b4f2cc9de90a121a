"""Reads edit recordings: VS Code's `*.recording.w.json`, and the same entries as JSON lines.

A VS Code recording is `{"log": [ENTRY, …]}`; ours is one ENTRY per line. Other keys are ignored, and so are entries of other
kinds. Offsets count UTF-16 code units, as editors do; times are milliseconds.

| kind | fields |
|---|---|
| `documentEncountered` | `id`, `relativePath`: every later entry names the document by its id |
| `setContent` | `id`, `time`, `content` |
| `storeContent`, `restoreContent` | `id`, `time`, `contentId`: the text at that moment gets a name, or comes back by it |
| `changed` | `id`, `time`, `edit`: `[[start, end, text], …]`, ascending, disjoint, all in the coordinates before the change |
| `documentEvent` | `id`, `data`: right behind a change, with `data.source` `inlineSuggestion.accept`, says that a suggestion was taken |
| `selectionChanged` | `id`, `time`, `selection`: `[[start, end], …]`; the first one counts |

An entry that is older than the one before it happened when that one did: recorders write what they gather later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from foretype_context.syntax.document import Edit

from foretype_eval.errors import RecordingError
from foretype_eval.replay.edit_events import Changed, Event, Loaded, Moved, Recording

_KINDS: Final = frozenset(
    {
        "documentEncountered",
        "setContent",
        "storeContent",
        "restoreContent",
        "changed",
        "selectionChanged",
        "documentEvent",
    }
)
_ACCEPTED: Final = "inlineSuggestion.accept"
_RECORDING_BYTES_MAX: Final = 512 << 20


def load_recording(path: Path) -> Recording:
    """Reads a recording.

    Raises:
        RecordingError: not a recording, or an entry is malformed.
        OSError: the file cannot be read.
    """
    size = path.stat().st_size
    if size > _RECORDING_BYTES_MAX:
        raise RecordingError(f"{path}: {size:,} bytes; a recording may have {_RECORDING_BYTES_MAX:,}")
    reader = _Reader(path.name)
    for where, entry in _entries(path):
        reader.take(where, entry)
    if not any(isinstance(event, Changed) for event in reader.events):
        raise RecordingError(f"{path}: nothing was changed in this recording; kinds found: {reader.found()}")
    return Recording(path.name, tuple(reader.events), dict(reader.notes))


def utf16_edits(text: str, edits: Any, where: str) -> tuple[Edit, ...]:
    """`[[start, end, text], …]` of a recording as edits in sequence, each in the coordinates that the one before it left.

    Raises:
        RecordingError: they do not fit `text`; the message begins with `where`.
    """
    if not isinstance(edits, list):
        raise _wrong(where, "edit", "an array", edits)
    offsets = _Offsets(text)
    found: list[Edit] = []
    least = shift = 0
    for at, one in enumerate(cast("list[Any]", edits)):
        field = f"edit[{at}]"
        if not isinstance(one, list) or len(cast("list[Any]", one)) != 3:
            raise _wrong(where, field, "[start, end, text]", one)
        places, new = cast("list[Any]", one)[:2], cast("list[Any]", one)[2]
        if not isinstance(new, str):
            raise _wrong(where, f"{field}[2]", "a string", new)
        for index, place in enumerate(places):
            if not _whole(place) or not 0 <= place <= offsets.units:
                raise _wrong(where, f"{field}[{index}]", f"an offset in a text of {offsets.units} UTF-16 units", place)
        first, last = offsets.of(places[0]), offsets.of(places[1])
        if not least <= first <= last:
            raise _wrong(where, field, "ascending, disjoint edits", one)
        found.append(Edit(first + shift, last + shift, new))
        least, shift = last, shift + len(new) - (last - first)
    return tuple(found)


def _entries(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    raw = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    try:
        whole: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # More than one line, or damaged: the lines tell where.
        yield from _lines(path, raw)
        return
    if not isinstance(whole, dict):
        raise RecordingError(f"{path}: expected an object with `log`, or one object per line")
    fields = cast("dict[str, Any]", whole)
    if "log" not in fields:
        yield "line 1", fields
        return
    log: Any = fields["log"]
    if not isinstance(log, list):
        raise RecordingError(f"{path}: field `log`: expected an array")
    for at, entry in enumerate(cast("list[Any]", log)):
        yield f"log[{at}]", _entry(f"{path}: log[{at}]", entry)


def _lines(path: Path, raw: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(raw.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            value: Any = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RecordingError(f"{path}: line {number}: not JSON ({error})") from error
        yield f"line {number}", _entry(f"{path}: line {number}", value)


def _entry(where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RecordingError(f"{where}: expected an object")
    return cast("dict[str, Any]", value)


class _Reader:
    """Entries become events; texts are kept, since offsets must be translated to code points where they happen."""

    def __init__(self, name: str) -> None:
        self.events: list[Event] = []
        self.notes: Counter[str] = Counter()
        self._name = name
        self._kinds: Counter[str] = Counter()
        self._paths: dict[int, str] = {}
        self._texts: dict[int, str] = {}
        self._stored: dict[str, str] = {}
        self._now_s = 0.0
        self._where = ""

    def found(self) -> str:
        return ", ".join(sorted(self._kinds)) or "none"

    def take(self, where: str, entry: dict[str, Any]) -> None:
        self._where = f"{self._name}: {where}"
        kind = entry.get("kind")
        if not isinstance(kind, str):
            raise self._wrong("kind", "a string", kind)
        self._kinds[kind] += 1
        if kind not in _KINDS:
            return
        if kind == "documentEvent":
            self._reason(entry)
            return
        identity = self._number(entry, "id")
        if kind == "documentEncountered":
            self._paths[identity] = self._string(entry, "relativePath").replace("\\", "/")
            return
        if identity not in self._paths:
            raise self._wrong("id", "a document that was encountered before", identity)
        self._now_s = max(self._now_s, self._number(entry, "time") / 1000)
        if kind == "setContent":
            self._load(identity, self._string(entry, "content"))
        elif kind == "storeContent":
            self._stored[self._string(entry, "contentId")] = self._text(identity)
        elif kind == "restoreContent":
            name = self._string(entry, "contentId")
            if name not in self._stored:
                raise self._wrong("contentId", "a content that was stored before", name)
            self._load(identity, self._stored[name])
        elif kind == "changed":
            self._change(identity, entry)
        else:
            self._select(identity, entry)

    def _reason(self, entry: dict[str, Any]) -> None:
        """Other events of a document, and other reasons of a change, are nothing that is measured."""
        data: Any = entry.get("data")
        if not isinstance(data, dict) or cast("dict[str, Any]", data).get("source") != _ACCEPTED:
            return
        for at in range(len(self.events) - 1, max(len(self.events) - 4, -1), -1):  # a selection may stand between
            event = self.events[at]
            if isinstance(event, Changed) and event.path == self._paths.get(entry.get("id", -1)):
                self.events[at] = replace(event, accepted=True)
                return

    def _load(self, identity: int, text: str) -> None:
        self._texts[identity] = text
        self.events.append(Loaded(self._now_s, self._paths[identity], text))

    def _text(self, identity: int) -> str:
        if identity not in self._texts:
            raise self._wrong("id", "a document whose content was set before", identity)
        return self._texts[identity]

    def _change(self, identity: int, entry: dict[str, Any]) -> None:
        text = self._text(identity)
        edits = utf16_edits(text, self._array(entry, "edit"), self._where)
        for start, end, new in edits:
            text = f"{text[:start]}{new}{text[end:]}"
        self._texts[identity] = text
        self.events.append(Changed(self._now_s, self._paths[identity], edits))

    def _select(self, identity: int, entry: dict[str, Any]) -> None:
        selections = self._array(entry, "selection")
        if identity not in self._texts or not selections:
            self.notes["selections of unknown documents"] += 1
            return
        first: Any = selections[0]
        if not isinstance(first, list) or len(cast("list[Any]", first)) != 2:
            raise self._wrong("selection[0]", "[start, end]", first)
        start, end = cast("list[Any]", first)
        offsets = _Offsets(self._texts[identity])
        # A recorder may note a selection a moment before or after the change that caused it.
        places = [offsets.of(min(one, offsets.units)) for one in (start, end) if _whole(one) and one >= 0]
        if len(places) != 2:
            raise self._wrong("selection[0]", "two whole numbers from 0 on", first)
        self.events.append(Moved(self._now_s, self._paths[identity], places[1], places[0] != places[1]))

    def _number(self, entry: dict[str, Any], field: str) -> int:
        value = entry.get(field)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not _whole(value):
            raise self._wrong(field, "a whole number", value)
        return cast("int", value)

    def _string(self, entry: dict[str, Any], field: str) -> str:
        value = entry.get(field)
        if not isinstance(value, str):
            raise self._wrong(field, "a string", value)
        return value

    def _array(self, entry: dict[str, Any], field: str) -> list[Any]:
        value = entry.get(field)
        if not isinstance(value, list):
            raise self._wrong(field, "an array", value)
        return cast("list[Any]", value)

    def _wrong(self, field: str, expected: str, value: Any) -> RecordingError:
        return _wrong(self._where, field, expected, value)


def _wrong(where: str, field: str, expected: str, value: Any) -> RecordingError:
    shown = repr(value)
    return RecordingError(
        f"{where}: field `{field}`: expected {expected}, not {shown if len(shown) <= 60 else shown[:57] + '…'}"
    )


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class _Offsets:
    """UTF-16 offsets of a text as code points. An offset inside a surrogate pair counts as the one before it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._plain = text.isascii() or max(text) <= "\uffff"
        self.units = len(text) if self._plain else len(text.encode("utf-16-le", "surrogatepass")) // 2

    def of(self, units: int) -> int:
        if self._plain:
            return units
        data = self._text.encode("utf-16-le", "surrogatepass")[: 2 * units]
        return len(data.decode("utf-16-le", "ignore"))
