"""What a model's answers do on files that it was not trained on, asked for on the product's own path.

Cuts stand where people ask: behind the indentation of a line that is not there yet (`next_line`), and at any character of a line
(`rest_of_line`). The engine is the embedded one in a private gateway, the prompt the assembler's, greedy; nothing is cut by a rule
of the client, so that it is the network that ends. Only `parses` asks for what a user would see unasked, by all rules of the client and
the profile's: whether the language's own checker takes the file with it.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from foretype_client.feedback.feedback import Feedback
from foretype_client.flow.judgement import Candidate, SyntaxFilter, judge
from foretype_client.flow.planning import call_of
from foretype_client.flow.question import Question
from foretype_client.flow.strands import Place
from foretype_client.flow.suggestion import Origin, Suggestion
from foretype_client.policy.switches import Switches
from foretype_client.policy.trigger import Trigger
from foretype_client.session.session import Session
from foretype_context.finish.in_place import left_open
from foretype_context.prompt.assemble import Assembler, PlanState
from foretype_context.prompt.healing import HealedText
from foretype_context.prompt.profile import Profile, Stop
from foretype_context.syntax.document import Document, Snapshot
from foretype_context.syntax.languages import language_of
from foretype_eval.console import print_table
from foretype_eval.fim.grade import harms
from foretype_eval.gateway import GatewayOptions, connected
from foretype_models.artifacts import digest_file
from foretype_wire.messages import Delta, Finish

from foretype_lab.corpus.store import Store
from foretype_lab.quality.behaviour import loops, taken

KINDS: Final = ("next_line", "rest_of_line")
AIMS: Final = {
    "exact": "",
    "first_word": "",
    "ends_in_line": "≥ 85 %",
    "loops": "≤ 3 %",
    "harm": "≤ 4 %",
    "parses": "≥ 97 % in Python",
}
_SEED: Final = 11
_ANSWER_TOKENS: Final = 48
_DEADLINE_MS: Final = 60_000.0
_COMMENTS: Final = ("#", "//", "/*", "*")

Progress = Callable[[str, int, int], None]


class Cut(NamedTuple):
    """`text[start:end]` of a file is missing, the rest of a line."""

    kind: str
    path: str
    text: str
    start: int
    end: int


def cuts_of(store: Store, count: int, seed: int, languages: Sequence[str] | None = None) -> Iterator[tuple[str, Cut]]:
    """As many cuts of each language and kind, from every project in turn, so that none dominates; the same for the same seed."""
    files: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, (repository, path, _, size) in enumerate(store.index):
        if size and (languages is None or language_of(path) in languages):
            files[language_of(path)][repository].append(number)
    for language, repositories in sorted(files.items()):
        for kind in KINDS:
            draw = random.Random(f"{seed}/{language}/{kind}")
            names, found, tried = sorted(repositories), 0, 0
            while found < count and tried < 50 * count:
                number = draw.choice(repositories[names[tried % len(names)]])
                tried += 1
                if (cut := _cut(store.index[number][1], store.text(number), kind, draw)) is not None:
                    found += 1
                    yield language, cut


def _cut(path: str, text: str, kind: str, draw: random.Random) -> Cut | None:
    at = draw.randrange(len(text)) if text else 0
    first = text.rfind("\n", 0, at) + 1
    last = text.find("\n", at)
    line = text[first : len(text) if last < 0 else last].rstrip("\r")
    said = line.strip()
    # Comments are not what a model is judged by; a line needs one above it to follow from.
    if not first or len(said) < 3 or said.startswith(_COMMENTS):
        return None
    indented = len(line) - len(line.lstrip())
    column = indented if kind == "next_line" else draw.randrange(indented, len(line.rstrip()))
    return Cut(kind, path, text, first + column, first + len(line))


class Answer(NamedTuple):
    """What was generated at a cut.

    Attributes:
        garbled: it did not begin with what the prompt left out, so that nobody sees it.
        shown: what of it is shown unasked, and how many characters right of the cursor that replaces.
    """

    text: str
    finish: Finish | None
    garbled: bool = False
    shown: tuple[str, int] = ("", 0)


async def _ask(session: Session, assembler: Assembler, cut: Cut, number: int) -> Answer:
    text = cut.text[: cut.start] + cut.text[cut.end :]
    document = Document(f"file:///cuts/{number}/{cut.path}", text, path=cut.path)
    snapshot = document.snapshot()
    plan, _ = assembler.plan(PlanState.empty(), snapshot, cut.start, block=False, now=0.0)
    stop = Stop(repeats=plan.healed)
    id_ = f"cut-{number}"
    call = call_of(plan, snapshot, id=id_, max_tokens=_ANSWER_TOKENS, stop=stop, deadline_ms=_DEADLINE_MS)
    parts: list[str] = []
    ended: Finish | None = None
    logprob, tokens = 0.0, 0
    healing = HealedText(plan.healed)
    async for event in session.complete(call):
        logprob, tokens = logprob + event.logprob, tokens + event.tokens
        if isinstance(event, Delta):
            parts.append(healing.feed(event.text))
        else:
            ended = event.finish
    if healing.garbled:
        return Answer("".join(parts), ended, garbled=True)
    said = "".join(parts)
    candidate = Candidate(
        id=call.id,
        text=said,
        kind=plan.kind_of(said),
        final=ended is not Finish.LENGTH,
        source=Origin.NETWORK,
        finish=ended,
        logprob=logprob / tokens if tokens else None,
        total_logprob=logprob if tokens else None,
    )
    return Answer(said, ended, shown=_shown(candidate, snapshot, cut.start, assembler.profile))


def _shown(candidate: Candidate, snapshot: Snapshot, offset: int, profile: Profile) -> tuple[str, int]:
    place = Place.of(snapshot, offset, profile)
    least = Switches().least(profile)
    question = Question(snapshot, offset, place, Trigger.AUTOMATIC, None, profile, 0.0, least)
    told = judge(candidate, question, Feedback(), 0.0, SyntaxFilter())
    return (told.text, told.replaces) if isinstance(told, Suggestion) else ("", 0)


def judged(cut: Cut, answer: Answer, encode: Callable[[str], Sequence[int]]) -> dict[str, bool | None]:
    """Each measure of :data:`AIMS` for one answer; None where it cannot be told."""
    wanted, line = cut.text[cut.start : cut.end], answer.text.split("\n")[0].rstrip("\r")
    before, after = cut.text[: cut.start], cut.text[cut.end :]
    if answer.garbled:
        return {**dict.fromkeys(AIMS), "exact": False, "first_word": False}
    return {
        "exact": line.rstrip() == wanted.rstrip(),
        "first_word": line.split()[:1] == wanted.split()[:1],
        "ends_in_line": answer.finish is Finish.END_OF_MIDDLE and "\n" not in answer.text,
        "loops": loops(encode(answer.text)),
        "harm": harms(before, line, after, language_of(cut.path)) if line.strip() else None,
        "parses": _parses(cut, answer),
    }


def _parses(cut: Cut, answer: Answer) -> bool | None:
    """Whether the file is taken with what is shown, or with what its line leaves open closed; None where nothing is shown."""
    language, before, after = language_of(cut.path), cut.text[: cut.start], cut.text[cut.end :]
    text, replaces = answer.shown
    if not text or not taken(cut.text, language):
        return None
    snapshot = Document("file:///cut", before + after, path=cut.path).snapshot()
    line = before.rfind("\n") + 1
    rest = left_open(snapshot, line, before[line:] + text)
    return any(taken(before + text + end + after[replaces:], language) for end in {"", rest})


async def measure(
    model: Path, store: Path, *, cuts: int, languages: Sequence[str] | None, layout: str | None, progress: Progress
) -> dict[str, Any]:
    """Shares by language and kind, and over all.

    Args:
        store: folder with the text store `validation`.
        cuts: of each language and kind.
        languages: None for all of the store.
        layout: of the prompts; None for the one that the file says.

    Raises:
        GatewayGoneError: the gateway does not start with this file; the message says why.
        OSError: no store there.
    """
    drawn = list(cuts_of(Store(store / "validation"), cuts, _SEED, languages))
    rows: dict[str, dict[str, list[dict[str, bool | None]]]] = defaultdict(lambda: defaultdict(list))
    async with connected(GatewayOptions(engine="embedded", model=model)) as gateway:
        assembler = gateway.assembler(layout=layout)
        for number, (language, cut) in enumerate(drawn):
            told = judged(cut, await _ask(gateway.session, assembler, cut, number), assembler.tokenizer.encode)
            rows[language][cut.kind].append(told)
            progress("cuts", number + 1, len(drawn))
        layout = layout or gateway.profile.layout
        named = {"model": model.name, "grammar": gateway.profile.grammar, "layout": layout}
    every = [told for kinds in rows.values() for one in kinds.values() for told in one]
    return {
        **named,
        "sha256": digest_file(model),
        "answer_tokens": _ANSWER_TOKENS,
        "seed": _SEED,
        "languages": {
            language: {kind: _shares(told) for kind, told in kinds.items()} for language, kinds in rows.items()
        },
        "all": _shares(every),
    }


def _shares(rows: Sequence[dict[str, bool | None]]) -> dict[str, float | int | None]:
    shares: dict[str, float | int | None] = {"cuts": len(rows)}
    for name in AIMS:
        told = [row[name] for row in rows if row[name] is not None]
        shares[name] = round(sum(map(bool, told)) / len(told), 4) if told else None
    return shares


def show(result: dict[str, Any]) -> None:
    """For a terminal: a row for each language and kind, all together, and what is wanted."""
    named = [
        (f"{language}, {kind}".replace("_", " "), shares)
        for language, kinds in result["languages"].items()
        for kind, shares in kinds.items()
    ]
    rows: list[list[object]] = []
    for name, shares in [*named, ("all", result["all"])]:
        cells = (None if shares[one] is None else f"{shares[one]:.1%}" for one in AIMS)
        rows.append([name, shares["cuts"], *cells])
    rows.append(["wanted", "", *AIMS.values()])
    title = f"{result['model']}, {result['layout']} of {result['grammar']}, {result['sha256'][:12]}"
    print_table(title, ("", "cuts", *(name.replace("_", " ") for name in AIMS)), rows)
