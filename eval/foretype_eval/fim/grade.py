"""Graders of a completion: exact match, execution, and what tree-sitter and the eye would object to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
from foretype_context.syntax.languages import parser_for
from rapidfuzz.distance import Levenshtein

from foretype_eval.fim.items import Item
from foretype_eval.sandbox import Program, ProgramResult, Sandbox

_REPEAT_WINDOW_LINES: Final = 5


class GradedRow(msgspec.Struct, kw_only=True):
    """One line of `items.jsonl`: ids, hashes and outcomes, no text of the data set.

    Attributes:
        passed: executed and right; None where the item cannot be executed.
        outcome: how execution ended.
        no_harm: the completed file has no more syntax errors than the file with the hole; None where not parsed.
        text: the completion itself, only when the user asked to keep it.
    """

    id: str
    cluster: str
    language: str
    brace_only: bool
    blank_reference: bool
    exact: bool
    passed: bool | None = None
    outcome: str | None = None
    empty: bool
    repeats: bool
    no_harm: bool | None = None
    similarity: float
    chars: int
    reference_chars: int
    completion_hash: str
    finish: str | None = None
    generated_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    mean_logprob: float | None = None
    ttft_ms: float | None = None
    total_ms: float | None = None
    error: str | None = None
    text: str | None = None


def exact_match(completion: str, reference: str) -> bool:
    """Equal up to blanks at the end, which nobody sees."""
    return completion.rstrip() == reference.rstrip()


def repeats(prefix: str, completion: str) -> bool:
    """The last line of the completion equals one of the five before it."""
    lines = [line.strip() for line in (prefix + completion).split("\n") if line.strip()]
    if not completion.strip() or len(lines) < 2:
        return False
    return lines[-1] in lines[-1 - _REPEAT_WINDOW_LINES : -1]


def error_nodes(text: str, language: str = "python") -> int | None:
    """ERROR and MISSING nodes of tree-sitter's tree; None for a language without a grammar here."""
    parser = parser_for(language)
    if parser is None:
        return None
    waiting = [parser.parse(text.encode("utf-8", "replace")).root_node]
    found = 0
    while waiting:
        node = waiting.pop()
        if node.has_error or node.is_missing:
            found += node.is_error or node.is_missing
            waiting += node.children
    return found


def harms(before: str, said: str, after: str, language: str = "python") -> bool | None:
    """Whether a file has more syntax errors with what was said than without it; None where nothing can tell."""
    with_it, without = error_nodes(before + said + after, language), error_nodes(before + after, language)
    return None if with_it is None or without is None else with_it > without


def no_harm(item: Item, completion: str) -> bool | None:
    """That it harms the file no more than its hole does; None for languages other than Python."""
    return None if item.language != "python" else not harms(item.prefix, completion, item.suffix)


def grade(item: Item, completion: str, *, completion_hash: str, keep_text: bool = False) -> GradedRow:
    """Everything that needs no execution; `passed` and `outcome` are filled in by :func:`execute`."""
    return GradedRow(
        id=item.id,
        cluster=item.cluster,
        language=item.language,
        brace_only=item.brace_only,
        blank_reference=item.blank,
        exact=exact_match(completion, item.reference),
        empty=not completion.strip(),
        repeats=repeats(item.prefix, completion),
        no_harm=no_harm(item, completion),
        similarity=round(Levenshtein.normalized_similarity(completion.strip(), item.reference.strip()), 4),
        chars=len(completion),
        reference_chars=len(item.reference),
        completion_hash=completion_hash,
        text=completion if keep_text else None,
    )


def execute(sandbox: Sandbox, pairs: Iterable[tuple[Item, str]]) -> Iterator[tuple[bool | None, str | None]]:
    """For each item and completion: whether it passed, and how execution ended; (None, None) where there is no test."""
    taken: list[tuple[Item, int]] = []

    def programs() -> Iterator[Program]:
        for item, completion in pairs:
            wanted = item.programs(completion)
            taken.append((item, len(wanted)))
            yield from wanted

    verdicts = sandbox.run(programs())
    pending: list[ProgramResult] = []
    # `programs` runs ahead of the verdicts, so an item's count is known before its first verdict arrives.
    for verdict in verdicts:
        while taken and taken[0][1] == 0:
            taken.pop(0)
            yield None, None
        pending.append(verdict)
        item, count = taken[0]
        if len(pending) == count:
            taken.pop(0)
            yield _outcome(item, pending)
            pending = []
    for _ in taken:
        yield None, None


def _outcome(item: Item, verdicts: Sequence[ProgramResult]) -> tuple[bool, str]:
    if item.test is None:
        raise ValueError(f"{item.id} has no test")
    passed = item.test.passed(list(verdicts))
    bad = next((verdict for verdict in verdicts if not verdict.passed), None)
    if bad is not None:
        return False, str(bad.status)
    return passed, "passed" if passed else "wrong_answer"
