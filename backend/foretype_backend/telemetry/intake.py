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
from typing import Any, Final, NamedTuple

import msgspec
from foretype_wire.telemetry import (
    EVENT_VERSION,
    Accept,
    Count,
    Dismiss,
    Display,
    Event,
    Feel,
    Id,
    Milliseconds,
    Name,
    NextEdit,
    NextSurvive,
    Opportunity,
    Request,
    Result,
    Sample,
    Survive,
    Typing,
)

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
    """A batch, read: rows in the order of `EVENT_COLUMNS`, samples with their day, and what was refused."""

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


_KINDS: Final[dict[str, type[Any]]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (
        Opportunity,
        Request,
        Result,
        Display,
        Accept,
        Dismiss,
        Survive,
        Typing,
        Feel,
        NextEdit,
        NextSurvive,
        Sample,
    )
}
_FIELDS: Final = {name: frozenset((*kind.__struct_fields__, "event")) for name, kind in _KINDS.items()}


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
        if known is None:
            parts = _unknown(raw)
        elif known is Sample:
            samples.append((day, event))
            continue
        else:
            parts = _parts(event)
            if len(raw) > len(_FIELDS[str(kind)] & raw.keys()):
                parts[-1].update(_numbers(raw, _FIELDS[str(kind)]))
        *columns, data = parts
        # The order of `EVENT_COLUMNS`.
        name = str(kind) if known is not None else "unknown"
        head = (tenant, user, event.session, event.seq, team, name, day, t_ms, event.at_ms, received_ms, clock)
        rows.append(
            (
                *head,
                event.language,
                f"{event.experiment}/{event.variant}"[:64] if event.experiment else event.variant,
                event.editor,
                event.model,
                event.experiment,
                event.block,
                event.first_ms if isinstance(event, Result) else None,
                *columns,
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


def _parts(event: Event) -> list[Any]:
    """subject, shown, parent, label, source, characters, lines, value_ms, age_s, arc, and what goes to `data`."""
    match event:
        case Opportunity():
            data = {"document": event.document, "trigger": event.trigger, "caret": event.caret}
            # `characters` says whether a grammar judged the text, `lines` whether it adds no error: both are summed by day.
            judged = (int(event.parses is not None), int(event.parses is True))
            return [event.id, "", "", event.outcome, "", *judged, 0.0, 0, 0, data]
        case Request():
            data = {
                "class": event.request_class,
                "prompt_tokens": event.prompt_tokens,
                "cached_tokens": event.cached_tokens,
                "supersedes": event.supersedes,
            }
            # Tokens are summed by day, so they stand in columns: prompt in `characters`, cached in `lines`.
            return [event.id, "", event.opportunity or "", event.request_class, "", *_tokens(event), 0.0, 0, 0, data]
        case Result():
            data = {
                "first_ms": event.first_ms,
                "generated_tokens": event.generated_tokens,
                "tokens_after_cancel": event.tokens_after_cancel,
                "logprob": event.logprob,
                "stages_ms": event.stages_ms,
            }
            return [
                event.id, "", "", event.finish, event.request_class, event.characters, event.generated_tokens, event.last_ms, 0, 0, data
            ]  # fmt: skip
        case Display():
            data = {"display_source": event.display_source, "request": event.request}
            return [
                event.id, event.shown, event.opportunity or "", event.end, event.served_from, event.characters,
                event.lines, event.visible_ms, 0, 0, data,
            ]  # fmt: skip
        case Accept():
            return [event.id, event.shown, "", event.kind, event.how, event.characters, event.lines, 0.0, 0, 0, {}]
        case Dismiss():
            return [event.id, event.shown, "", event.kind.value, "", 0, 0, 0.0, 0, 0, {}]
        case Survive():
            share = event.levenshtein / max(event.characters, event.length_now, 1)
            data = {
                "length_now": event.length_now,
                "levenshtein": event.levenshtein,
                "fourgram": event.fourgram,
                "branch_changed": event.branch_changed,
            }
            # `lines` says whether it is mostly unchanged (Levenshtein / max(length) < 0.33: PR_33@t).
            label = "branch_changed" if event.branch_changed else ""
            unchanged = int(share < 0.33)
            return [
                event.id, event.shown, "", label, "", event.characters, unchanged, share, event.age_s, event.arc, data
            ]  # fmt: skip
        case Typing():
            return ["", "", "", "", "", event.keys, event.deletions, 0.0, 0, 0, {}]
        case Feel():
            # The p95 in microseconds: a column of whole numbers is free.
            p95_us = round(event.p95_ms * 1000)
            return ["", "", "", event.answer, "", p95_us, event.suggestions, event.p50_ms, 0, 0, {}]
        case NextEdit():
            data = {"order": event.order, "elsewhere": event.elsewhere}
            # `age_s` says whether it was a jump at first, `arc` whether the user went there.
            return [
                event.id, event.chain, "", event.end, event.evidence, event.inserted, event.deleted, event.visible_ms,
                int(event.jump), int(event.jumped), data,
            ]  # fmt: skip
        case NextSurvive():
            data = {"inserted_kept": event.inserted_kept, "deleted_kept": event.deleted_kept}
            label = "reversed" if event.reversed else ""
            kept = event.inserted_kept + event.deleted_kept
            return [
                event.id, "", "", label, "", event.inserted + event.deleted, int(event.reversed), 0.0, event.age_s, kept, data
            ]  # fmt: skip
        case Sample():  # goes to the blob store, never to a row
            raise TypeError("a sample is no row")


def _tokens(event: Request) -> tuple[int, int]:
    return event.prompt_tokens, min(event.cached_tokens, event.prompt_tokens)


def _unknown(raw: dict[str, object]) -> list[Any]:
    label = raw.get("event")
    name = label if isinstance(label, str) and _LABEL.fullmatch(label) else ""
    base = frozenset(_Unknown.__struct_fields__)
    return ["", "", "", name, "", 0, 0, 0.0, 0, 0, _numbers(raw, base)]


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
