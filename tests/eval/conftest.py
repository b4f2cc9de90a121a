"""Small benchmarks of our own, in the formats of the public ones; none of their items is used."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Rows = list[dict[str, Any]]
WriteRows = Callable[[str, Rows], Path]

_PROGRAMS = [
    (
        "double",
        "def double(values):\n    result = []\n    for value in values:\n        result.append(value * 2)\n    return result\n",
        "assert candidate([1, 2]) == [2, 4]\n    assert candidate([]) == []",
    ),
    (
        "largest",
        (
            "def largest(values):\n    best = None\n    for value in values:\n        if best is None or value > best:\n"
            "            best = value\n    return best\n"
        ),
        "assert candidate([3, 9, 2]) == 9\n    assert candidate([]) is None",
    ),
    (
        "greet",
        "def greet(name):\n    greeting = 'hello ' + name\n    return greeting\n",
        "assert candidate('Ada') == 'hello Ada'",
    ),
]


def _test(checks: str) -> str:
    return f"\n\ndef check(candidate):\n    {checks}\n"


@pytest.fixture
def single_line_rows() -> Rows:
    """One item per body line, as in the single-line set."""
    rows: Rows = []
    for number, (name, source, checks) in enumerate(_PROGRAMS):
        lines = source.splitlines(keepends=True)
        rows += [
            {
                "task_id": f"SingleLineInfilling/Ours/{number}/L{hole - 1}",
                "entry_point": name,
                "prompt": "".join(lines[:hole]),
                "suffix": "".join(lines[hole + 1 :]),
                "canonical_solution": lines[hole],
                "test": _test(checks),
            }
            for hole in range(1, len(lines))
        ]
    return rows


@pytest.fixture
def random_span_rows() -> Rows:
    rows: Rows = []
    for number, (name, source, checks) in enumerate(_PROGRAMS):
        for cut, (start, end) in enumerate([(20, 33), (25, 26), (30, 55)], 1):
            rows.append(
                {
                    "task_id": f"RandomSpanInfilling/Ours/{number}/{cut}",
                    "entry_point": name,
                    "prompt": source[:start],
                    "suffix": source[end:],
                    "canonical_solution": source[start:end],
                    "test": _test(checks),
                }
            )
    return rows


@pytest.fixture
def safim_rows() -> Rows:
    frame = "n = int(input())\n{{completion}}\nprint(total)\n"
    return [
        {
            "task_id": "ours_1",
            "lang": "python",
            "prompt": "# add the numbers up to n\n" + frame,
            "eval_prompt": frame,
            "ground_truth": "total = sum(range(n + 1))",
            "unit_tests": json.dumps([{"input": "3\n", "output": ["6"]}, {"input": "0\n", "output": ["0"]}]),
        },
        {
            "task_id": "ours_2",
            "lang": "python",
            "prompt": frame,
            "eval_prompt": frame,
            "ground_truth": "total = n + 1",
            "unit_tests": [{"input": "3\n", "output": ["5"]}],  # its own reference is wrong
        },
        {
            "task_id": "ours_3",
            "lang": "java",
            "prompt": "class A { int f() { {{completion}} } }",
            "eval_prompt": "class A { int f() { {{completion}} } }",
            "ground_truth": "return 1;",
        },
    ]


@pytest.fixture
def santacoder_rows() -> Rows:
    return [
        {
            "name": "Ours_0_triple",
            "language": "py",
            "prompt": "def triple(value):\n    # three times",
            "suffix": "\n    return result\n",
            "canonical_solution": "    result = value * 3",
            "tests": "assert triple(2) == 6",
        },
        {
            "name": "Ours_1_sum",
            "language": "js",
            "prompt": "function sum(a, b) {\n  return a + b;\n",
            "suffix": "\n",
            "canonical_solution": "}",
        },
    ]


@pytest.fixture
def write_rows(tmp_path: Path) -> WriteRows:
    def write(name: str, rows: Rows) -> Path:
        path = tmp_path / name
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write
