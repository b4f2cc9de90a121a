"""Fill-in-the-middle items of public benchmarks, read from files that the user names; none of them ships with the product.

The format is told by the fields of the rows:

| format | fields | cluster | executed by |
|---|---|---|---|
| HumanEval-Infilling (openai/human-eval-infilling) | `task_id entry_point prompt suffix canonical_solution test` | problem | its unit tests |
| SAFIM (gonglinyuan/safim) | `task_id lang prompt eval_prompt ground_truth [unit_tests]` | the whole program | standard input and output |
| SantaCoder-FIM (MultiPL-E) | `name language prompt suffix canonical_solution [tests]` | problem | its unit tests |

A hole that is a whole line (HumanEval-Infilling's single-line and multi-line sets, SantaCoder-FIM) is shown to the model as an
editor shows it: an empty line with the cursor on it. The newline after the hole stays in the suffix, and is not part of the
reference.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec

from foretype_eval.errors import EvalError
from foretype_eval.sandbox import Program, ProgramResult

_HOLE: Final = "{{completion}}"
_BRACES: Final = re.compile(r"[\s()\[\]{},;:]*")
_LANGUAGES: Final = {
    "py": "python", "python": "python", "js": "javascript", "javascript": "javascript", "java": "java",
    "cpp": "cpp", "c++": "cpp", "csharp": "csharp", "c#": "csharp",
}  # fmt: skip


class StopRule(StrEnum):
    """Where a completion ends; part of the metric, so it is printed with every figure."""

    FIRST_LINE = "first newline after a non-blank character, or end of middle, or token limit"
    END_OF_MIDDLE = "end of middle, or token limit"


@dataclass(frozen=True, slots=True)
class UnitTest:
    """Source that follows the completed program and raises unless it is right."""

    source: str

    def programs(self, text: str) -> list[Program]:
        return [Program(f"{text}\n{self.source}")]

    def passed(self, verdicts: list[ProgramResult]) -> bool:
        return all(verdict.passed for verdict in verdicts)


@dataclass(frozen=True, slots=True)
class InputOutputTest:
    """The completed `frame` is run once per case: what it reads, and the outputs of which one must be what it prints."""

    frame: tuple[str, str]
    cases: tuple[tuple[str, tuple[str, ...]], ...]

    def programs(self, completion: str) -> list[Program]:
        source = self.frame[0] + completion + self.frame[1]
        return [Program(source, stdin) for stdin, _ in self.cases]

    def passed(self, verdicts: list[ProgramResult]) -> bool:
        return all(
            verdict.passed and verdict.output.split() in [output.split() for output in outputs]
            for verdict, (_, outputs) in zip(verdicts, self.cases, strict=True)
        )


class _Case(msgspec.Struct):
    input: str
    output: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One hole to fill.

    Attributes:
        cluster: items of one cluster are not independent; intervals resample clusters.
        test: how to execute it, or None where the data has no tests.
        brace_only: the reference is nothing but brackets and punctuation; reported apart.
    """

    id: str
    cluster: str
    prefix: str
    suffix: str
    reference: str
    language: str
    stop: StopRule
    test: UnitTest | InputOutputTest | None = None

    @property
    def brace_only(self) -> bool:
        return bool(self.reference.strip()) and _BRACES.fullmatch(self.reference) is not None

    @property
    def blank(self) -> bool:
        return not self.reference.strip()

    def filled(self, completion: str) -> str:
        return self.prefix + completion + self.suffix

    def programs(self, completion: str) -> list[Program]:
        """What to execute for this completion; empty where it cannot be executed here."""
        if self.language != "python" or self.test is None:
            return []
        return self.test.programs(self.filled(completion) if isinstance(self.test, UnitTest) else completion)


def load_items(path: Path) -> list[Item]:
    """Items of a `.jsonl` or `.jsonl.gz` file, in its order.

    Raises:
        EvalError: unreadable, of no known format, or with a field missing or of a wrong type.
    """
    items: list[Item] = []
    for number, row in _rows(path):
        try:
            items.append(_item(row))
        except KeyError as error:
            raise EvalError(f"{path}:{number}: field {error} is missing; {_KNOWN}") from error
        except (TypeError, ValueError) as error:  # of msgspec too
            raise EvalError(f"{path}:{number}: {error}") from error
    if not items:
        raise EvalError(f"{path} holds no items")
    if len({item.id for item in items}) != len(items):
        raise EvalError(f"{path}: several items have the same id; runs could not be joined")
    return items


_KNOWN: Final = "known formats are HumanEval-Infilling, SAFIM and SantaCoder-FIM as JSON lines"


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, msgspec.json.decode(line, type=dict[str, Any])
    except (OSError, EOFError, zlib.error, msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise EvalError(f"cannot read {path}: {error}; {_KNOWN}") from error


def _item(row: dict[str, Any]) -> Item:
    if "eval_prompt" in row:
        return _safim(row)
    if "entry_point" in row:
        return _human_eval_infilling(row)
    return _santacoder(row)


def _text(row: dict[str, Any], field: str) -> str:
    value = row[field]
    if not isinstance(value, str):
        raise TypeError(f"field {field!r} is {type(value).__name__}, a string is needed")
    return value


def _human_eval_infilling(row: dict[str, Any]) -> Item:
    id_ = _text(row, "task_id")
    kind, _, rest = id_.partition("/")
    prefix, suffix, reference = (_text(row, name) for name in ("prompt", "suffix", "canonical_solution"))
    # The two line sets cut at line ends by construction; a random span that happens to end there is not a line hole.
    if kind in {"SingleLineInfilling", "MultiLineInfilling"}:
        prefix, suffix, reference = _as_empty_line(prefix, suffix, reference)
    return Item(
        id=id_,
        cluster=rest.rpartition("/")[0] or id_,
        prefix=prefix,
        suffix=suffix,
        reference=reference,
        language="python",
        stop=StopRule.FIRST_LINE if kind == "SingleLineInfilling" else StopRule.END_OF_MIDDLE,
        test=UnitTest(f"{_text(row, 'test')}\ncheck({_text(row, 'entry_point')})"),
    )


def _as_empty_line(prefix: str, suffix: str, reference: str) -> tuple[str, str, str]:
    if prefix and not prefix.endswith("\n"):
        prefix += "\n"
        reference = reference.removeprefix("\n")
    reference = reference.removesuffix("\n")
    return prefix, suffix if suffix.startswith("\n") and not reference.endswith("\n") else "\n" + suffix, reference


def _santacoder(row: dict[str, Any]) -> Item:
    name, language = _text(row, "name"), _text(row, "language")
    prefix, suffix, reference = _as_empty_line(
        _text(row, "prompt"), _text(row, "suffix"), _text(row, "canonical_solution")
    )
    tests = row.get("tests")
    digest = blake2b(f"{prefix}\0{suffix}".encode(), digest_size=6).hexdigest()
    return Item(
        id=f"SantaCoderFIM/{language}/{name}/{digest}",
        cluster=name,
        prefix=prefix,
        suffix=suffix,
        reference=reference,
        language=_language(language),
        stop=StopRule.FIRST_LINE,
        test=UnitTest(tests) if isinstance(tests, str) and tests.strip() else None,
    )


def _safim(row: dict[str, Any]) -> Item:
    prefix, hole, suffix = _text(row, "prompt").partition(_HOLE)
    before, frame_hole, after = _text(row, "eval_prompt").partition(_HOLE)
    if not hole or not frame_hole:
        raise ValueError(f"fields 'prompt' and 'eval_prompt' need the placeholder {_HOLE}")
    reference = _text(row, "ground_truth")
    tests: Any = row.get("unit_tests") or []
    decoded = (
        msgspec.json.decode(tests, type=list[_Case]) if isinstance(tests, str) else msgspec.convert(tests, list[_Case])
    )
    cases = tuple((case.input, case.output) for case in decoded)
    return Item(
        id=_text(row, "task_id"),
        cluster=blake2b((before + reference + after).encode(), digest_size=8).hexdigest(),
        prefix=prefix,
        suffix=suffix,
        reference=reference,
        language=_language(_text(row, "lang")),
        stop=StopRule.END_OF_MIDDLE,
        test=InputOutputTest((before, after), cases) if cases else None,
    )


def _language(name: str) -> str:
    known = _LANGUAGES.get(name.lower())
    if known is None:
        raise ValueError(f"language {name!r} is not known; known are {', '.join(sorted(_LANGUAGES))}")
    return known
