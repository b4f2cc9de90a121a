"""From the wire's events to rows: what is right is kept, what is wrong is named, what is unknown is kept where it is safe.

Pure. Rules for what a client may send (and what its clock may say):

- an event that breaks its own definition is refused by field, and takes no other event of its batch with it
- an unknown version or kind is kept as `unknown` with its numbers, so that a newer client loses nothing that is countable
- an unknown field is kept if it is a number or a boolean; text of a field that nobody knows is never kept
- a time that cannot be (more than five minutes ahead, older than a spool can be, or than events are kept) becomes the time of receipt, and says so;
  durations never come from wall time, so that a clock that jumps spoils none
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
from foretype_wire.telemetry import (
    EVENT_VERSION,
    Count,
    Id,
    Milliseconds,
    Name,
    Request,
    Sample,
)

from foretype_backend.telemetry.schema import COLUMNS_OF, FIELD_COLUMNS, KINDS

_AHEAD_MS: Final = 300_000
_DAY_MS: Final = 86_400_000
_BEHIND_MS: Final = 35 * _DAY_MS
_UNKNOWN_FIELDS: Final = 32
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LABEL: Final = re.compile(r"[a-z0-9_]{1,32}")
_WHERE: Final = re.compile(r" - at `\$\.?(.*?)`$")


class Sender(NamedTuple):
    """Who sends: the connection's name, and under whom the events are kept."""

    connection: str
    tenant: str = "default"
    team: str = ""
    user: str = ""
    client: str = ""


class RefusedEvent(NamedTuple):
    """One event that was not taken: its index in the batch, the field with it, and what it should have been."""

    at: int
    field: str
    message: str


class Received(NamedTuple):
    """A batch, read: rows as `COLUMNS_OF` their kind, samples with their day, and what was refused."""

    rows: list[tuple[Any, ...]]
    samples: list[tuple[str, Sample]]
    refused: list[RefusedEvent]


class _Unknown(msgspec.Struct, frozen=True):
    """What every version of an event has."""

    session: Id
    seq: Count
    t_ms: Count
    at_ms: Milliseconds
    language: Name = ""
    experiment: Name = ""
    variant: Name = ""
    block: Count = 0
    editor: Name = ""
    model: Name = ""


_KINDS: Final[dict[str, type[Any]]] = {**KINDS, "sample": Sample}
_FIELDS: Final = {name: frozenset((*kind.__struct_fields__, "event")) for name, kind in _KINDS.items()}
_TO_COLUMNS: Final = {
    name: attrgetter(*(column for column in COLUMNS_OF[name] if column in FIELD_COLUMNS)) for name in KINDS
}
_KNOWN_OF_UNKNOWN: Final = frozenset(_Unknown.__struct_fields__)
_TO_DATA: Final = {
    name: tuple(sorted(fields - {*FIELD_COLUMNS, *_KNOWN_OF_UNKNOWN, "v", "event"})) for name, fields in _FIELDS.items()
}


def safe_name(text: str) -> str:
    """`text` if it can be part of a path and a key, else its digest; "" stays "anonymous"."""
    if not text:
        return "anonymous"
    if _NAME.fullmatch(text):
        return text
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def read(
    sender: Sender, events: Sequence[dict[str, object]], *, received_ms: int, first: int = 0, kept_days: int = 366
) -> Received:
    """Read a batch, or the part of one that begins at `first`. Never raises: what cannot be taken is in `refused`.

    Args:
        kept_days: of events; what is older counts as of the day of receipt, since its own day may be summed and gone.
    """
    tenant, team, user = safe_name(sender.tenant), sender.team[:64], safe_name(sender.user)
    rows: list[tuple[Any, ...]] = []
    samples: list[tuple[str, Sample]] = []
    refused: list[RefusedEvent] = []
    for index, raw in enumerate(events, first):
        kind = raw.get("event")
        known = _KINDS.get(kind) if isinstance(kind, str) and raw.get("v", EVENT_VERSION) == EVENT_VERSION else None
        try:
            event: Any = msgspec.convert(raw, known or _Unknown)
        except (msgspec.ValidationError, UnicodeError, RecursionError) as error:
            refused.append(_refusal(index, error))
            continue
        t_ms, clock = _time(event.t_ms, received_ms, kept_days)
        day = datetime.fromtimestamp(t_ms / 1000, UTC).date().isoformat()
        if known is Sample:
            samples.append((day, event))
            continue
        name, fields, data = _read_fields(event, raw, known)
        # The order of `COLUMNS_OF[name]`.
        rows.append(
            (
                *(tenant, user, event.session, event.seq, team, name, day, t_ms, event.at_ms, received_ms, clock),
                event.language,
                f"{event.experiment}/{event.variant}"[:64] if event.experiment else event.variant,
                event.editor,
                event.model,
                event.experiment,
                event.block,
                *fields,
                msgspec.json.encode(data).decode() if data else "",
            )
        )
    return Received(rows, samples, refused)


def _time(t_ms: int, received_ms: int, kept_days: int) -> tuple[int, str]:
    if t_ms > received_ms + _AHEAD_MS:
        return received_ms, "future"
    first_kept_ms = (received_ms // _DAY_MS - max(kept_days - 1, 0)) * _DAY_MS
    if t_ms < max(received_ms - _BEHIND_MS, first_kept_ms):
        return received_ms, "past"
    return t_ms, ""


def _read_fields(
    event: Any, raw: dict[str, object], known: type[Any] | None
) -> tuple[str, Sequence[Any], dict[str, Any]]:
    """Its kind, its fields that have a column, and what goes to `data`."""
    if known is None:
        return "unknown", (), _unknown(raw)
    kind = str(known.__struct_config__.tag)
    if known is Request and event.cached_tokens > event.prompt_tokens:  # sums of shares rest on it
        event = msgspec.structs.replace(event, cached_tokens=event.prompt_tokens)
    data = _without_columns(event, kind)
    if len(raw) > len(_FIELDS[kind] & raw.keys()):
        data |= _numbers(raw, _FIELDS[kind])
    return kind, _TO_COLUMNS[kind](event), data


def _without_columns(event: Any, kind: str) -> dict[str, Any]:
    """Its fields that have no column, but for those that are as where nobody said anything."""
    found = {name: getattr(event, name) for name in _TO_DATA[kind]}
    return {name: value for name, value in found.items() if value not in (None, "", {})}


def _unknown(raw: dict[str, object]) -> dict[str, Any]:
    """The numbers of an event of a version or kind that nobody here knows, and what it calls itself."""
    label = raw.get("event")
    name = {"event": label} if isinstance(label, str) and _LABEL.fullmatch(label) else {}
    return name | _numbers(raw, _KNOWN_OF_UNKNOWN)


def _numbers(raw: dict[str, object], known: frozenset[str]) -> dict[str, object]:
    kept: dict[str, object] = {}
    for name, value in raw.items():
        if name in known or len(kept) >= _UNKNOWN_FIELDS or not _LABEL.fullmatch(name):
            continue
        if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
            kept[name] = value
    return kept


def _refusal(index: int, error: BaseException) -> RefusedEvent:
    message = str(error)
    where = _WHERE.search(message)
    path = where.group(1) if where is not None else ""
    if message.startswith("Object missing required field"):
        missing = message.split("`")[1]
        path = f"{path}.{missing}" if path else missing
    return RefusedEvent(index, f"events[{index}]{'.' if path else ''}{path}", _WHERE.sub("", message))
