"""The canned FIM probe: a model that fills this hole with something that is not code has the wrong template.

Source of the probe's purpose: peers whose users met a wrong FIM template or an instruct model as silent garbage.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from typing import Final

from foretype_context.grammars.grammar import announced
from foretype_context.prompt.assemble import Assembler
from foretype_context.syntax.document import Document

from foretype_client.asking import ask, plan_at
from foretype_client.session.session import Session

PREFIX: Final = "def add(a, b):\n    return "
SUFFIX: Final = "\n"

_SENTINEL: Final = re.compile(
    r"<\|[^|>\s]{1,40}\|>|<(?:fim|PRE|SUF|MID|EOT)[^>\s]{0,20}>|</?s>|\[(?:PREFIX|SUFFIX|MIDDLE)\]|<｜"
)
_PROSE: Final = re.compile(r"```|\b(?:Here is|Here's|Sure|As an AI|I can)\b")


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What the probe says; `broken` is a wrong template, not merely a weak model."""

    good: bool
    broken: bool
    detail: str
    remedy: str


async def probe(session: Session, assembler: Assembler) -> ProbeResult:
    """Ask for the hole in `PREFIX … SUFFIX` and judge the answer. Raises RequestRefusedError or GatewayGoneError."""
    snapshot = Document("foretype:doctor.py", PREFIX + SUFFIX, path="doctor.py", language="python").snapshot()
    plan, _ = plan_at(assembler, snapshot, len(PREFIX))
    answer = await ask(session, plan, snapshot, len(PREFIX))
    first_ms = answer.timings_ms["ttft"]
    profile = assembler.profile
    judged = judge(answer.raw, announced(profile.grammar, profile.grammar_rules).instead)
    return (
        judged if first_ms is None else replace(judged, detail=f"{judged.detail}, first text after {first_ms:.0f} ms")
    )


def judge(written: str, instead: tuple[str, ...] = ()) -> ProbeResult:
    """Whether `written` is code that could stand in the hole.

    Args:
        instead: how a chat answer of the family begins.
    """
    shown = f"return {written!r}"
    if (sentinel := _SENTINEL.search(written)) is not None:
        return _wrong(f"{shown}: the control token {sentinel[0]} came out as text")
    if _PROSE.search(written) or (instead and written.lstrip().startswith(instead)):
        return _wrong(f"{shown}: that is a chat answer, not code")
    line = written.partition("\n")[0]
    if not line.strip():
        remedy = "try another model; if every suggestion is empty, the grammar is not the model's: model.grammar of the gateway's profile names it"
        return ProbeResult(False, False, f"{shown}: nothing was written", remedy)
    try:
        names = {node.id for node in ast.walk(ast.parse(PREFIX + line)) if isinstance(node, ast.Name)}
    except (SyntaxError, ValueError, RecursionError):
        remedy = "a weak model, or not its grammar: `foretype use` proposes a good one, `foretype use MODEL --grammar ID` names it"
        return ProbeResult(False, False, f"{shown}: not valid Python", remedy)
    if not names & {"a", "b"}:
        detail = f"{shown}: valid, but it uses neither a nor b"
        return ProbeResult(False, False, detail, "a weak model, often wrong: `foretype use` proposes a good one")
    return ProbeResult(True, False, shown, "")


def _wrong(detail: str) -> ProbeResult:
    remedy = "the grammar is not the one this model was trained with: name it in model.grammar of the gateway's profile, or take a base (not chat) model"
    return ProbeResult(False, True, detail, remedy)
