"""Fixtures that people scored: a recording, and edits that might come next with what was thought of each.

Format of vscode-copilot-chat (MIT): a folder for each, with `recording.w.json` (:mod:`foretype_eval.replay.edit_recording`) and
`scoredEdits.w.json`: `{"edits": [{"documentUri", "edit": [[start, end, text], …] | null, "scoreCategory": nextEdit | valid | bad}, …]}`.
Offsets count UTF-16 code units; null is silence. Texts are compared, not edits: the same text may come of several. Its harness fails what
nobody scored; here that is its own column, and a chain of edits is scored at the first text that somebody did score.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from foretype_context.edits.followed import applied
from foretype_context.syntax.document import Edit

from foretype_eval.errors import RecordingError
from foretype_eval.next_edit.changes import leads_to
from foretype_eval.next_edit.offers import Predictor
from foretype_eval.next_edit.tally import TAB_KEYS, ClusterTally, WrongOffer, by_hand
from foretype_eval.replay.edit_events import Changed, Loaded, Recording
from foretype_eval.replay.edit_recording import load_recording, utf16_edits

_SCORED: Final = "scoredEdits.w.json"
_RECORDING: Final = "recording.w.json"
_SCORES: Final = ("nextEdit", "valid", "bad")
_CHAIN_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class Fixture:
    """One fixture.

    Attributes:
        path: of the document that is asked about.
        texts: what it might become, with the score of each.
        silence: score of no edit at all; None where nobody gave one.
    """

    name: str
    recording: Recording
    path: str
    texts: dict[str, str]
    silence: str | None


def is_fixtures(folder: Path) -> bool:
    return any(folder.glob(f"*/{_SCORED}")) or (folder / _SCORED).is_file()


def load_fixtures(folder: Path) -> list[Fixture]:
    """Reads every fixture in a folder, or the one that it is.

    Raises:
        RecordingError: one is broken; the message names file and field.
    """
    found = [folder] if (folder / _SCORED).is_file() else sorted(path.parent for path in folder.glob(f"*/{_SCORED}"))
    return [_load(one) for one in found]


def tried(fixture: Fixture, predictor: Predictor) -> tuple[ClusterTally, str]:
    """What is offered after the recording, and its score: `silent` where nothing is, `unscored` where nobody scored it."""
    tally = ClusterTally(fixture.name)
    tally.opportunities = int("nextEdit" in fixture.texts.values())
    now, cursor = _played(fixture, predictor, tally)
    before, edits, score = now, list[Edit](), "silent"
    evidence = ""
    for _ in range(_CHAIN_MAX):
        started = predictor.clock()
        offer = predictor.next(fixture.path, cursor)
        tally.ms.append(1000 * (predictor.clock() - started))
        if offer is None or offer.jump_only or offer.path != fixture.path:
            break
        now, evidence = applied(now, (offer.edit,)), evidence or offer.evidence
        edits.append(offer.edit)
        score = fixture.texts.get(now, "unscored")
        if score != "unscored":
            break
        predictor.changed(fixture.path, (offer.edit,), float(len(edits)), accepted=True)
        cursor = offer.edit.start + len(offer.edit.text)
    if not edits:
        return tally, score
    if score == "unscored" and any(
        score == "nextEdit" and _on_the_way(before, now, text) for text, score in fixture.texts.items()
    ):
        score = "on the way"
    right = score in ("nextEdit", "valid", "on the way")
    tally.judged(evidence, right=right)
    if right:
        tally.met = tally.opportunities
        tally.keys_saved = sum(by_hand(edit) - TAB_KEYS for edit in edits)
    else:
        tally.mistakes.append(WrongOffer(fixture.name, fixture.path, evidence, score, repr(edits), ()))
    return tally, score


def _on_the_way(before: str, now: str, wanted: str) -> bool:
    return leads_to(before, Edit(0, len(before), now), wanted)


def _played(fixture: Fixture, predictor: Predictor, tally: ClusterTally) -> tuple[str, int]:
    texts, cursor = dict[str, str](), 0
    for event in fixture.recording.events:
        if isinstance(event, Loaded):
            texts[event.path] = event.text
            predictor.opened(event.path, event.text)
        elif isinstance(event, Changed):
            texts[event.path] = applied(texts[event.path], event.edits)
            predictor.changed(event.path, event.edits, event.time_s, accepted=event.accepted)
            tally.keys += 1
            if event.edits:
                cursor = event.edits[-1].start + len(event.edits[-1].text)
        elif event.path == fixture.path:
            cursor = event.offset
    return texts[fixture.path], cursor


def _load(folder: Path) -> Fixture:
    if not (folder / _RECORDING).is_file():
        raise RecordingError(f"{folder / _RECORDING}: not there; a fixture is a recording and its scored edits")
    recording = load_recording(folder / _RECORDING)
    texts = dict[str, str]()
    last = ""
    for event in recording.events:
        if isinstance(event, Loaded):
            texts[event.path] = event.text
        elif isinstance(event, Changed):
            texts[event.path], last = applied(texts[event.path], event.edits), event.path
    where = f"{folder / _SCORED}"
    try:
        data: Any = msgspec.json.decode((folder / _SCORED).read_bytes())
    except (msgspec.DecodeError, UnicodeDecodeError, OSError) as error:
        raise RecordingError(f"{where}: not JSON ({error})") from error
    edits: Any = cast("dict[str, Any]", data).get("edits") if isinstance(data, dict) else None
    if not isinstance(edits, list) or not edits:
        raise RecordingError(
            f"{where}: field `edits`: expected scored edits, as vscode-copilot-chat's fixtures have them"
        )
    scored, silence = dict[str, str](), None
    for at, one in enumerate(cast("list[Any]", edits)):
        fields = cast("dict[str, Any]", one) if isinstance(one, dict) else {}
        score = fields.get("scoreCategory")
        if score == "unscored":
            continue
        if score not in _SCORES:
            raise RecordingError(f"{where}: edits[{at}]: field `scoreCategory`: expected one of {', '.join(_SCORES)}")
        if fields.get("edit") is None:
            silence = str(score)
            continue
        made = utf16_edits(texts[last], fields["edit"], f"{where}: edits[{at}]")
        scored[applied(texts[last], made)] = str(score)
    return Fixture(folder.name, recording, last, scored, silence)
