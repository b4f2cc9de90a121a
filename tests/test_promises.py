"""What users rely on goes by a line in the changelog alone, and comes with a test that would miss it (tests/promises.json)."""

import ast
from functools import cache
from pathlib import Path

import pytest
from foretype_lab.reference.kept import Kept, gone, new, read, removed, renewed
from foretype_lab.reference.promises import promises

HERE = Path(__file__).parent
FILE = HERE / "promises.json"
CHANGELOG = HERE.parent / "CHANGELOG.md"
MISSED_BY_NO_TEST = 121
"""How many only this file would miss. It may fall; write the test rather than raise it."""


@pytest.fixture(scope="module")
def now() -> dict[str, list[str]]:
    return promises()


@cache
def named_in(name: str) -> frozenset[str]:
    """Names of a file's tests, those of its classes as `Class::test`."""
    tree = ast.parse((HERE.parent / name).read_text("utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    scopes = [("", tree.body), *((f"{one.name}::", one.body) for one in classes)]
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    return frozenset(before + one.name for before, body in scopes for one in body if isinstance(one, functions))


def test_what_goes_is_said_in_the_changelog(now: dict[str, list[str]]) -> None:
    missing = gone(read(FILE), now, removed(CHANGELOG.read_text("utf-8")))
    assert not missing, 'say so under "### Removed" in CHANGELOG.md, as in "- KIND: `NAME`; why", then `make promises`'


def test_what_comes_is_in_the_file(now: dict[str, list[str]]) -> None:
    assert not new(read(FILE), now), "make promises, and name there a test that would miss it"


def test_the_tests_that_are_named_exist() -> None:
    named = {test for kind in read(FILE).values() for test in kind.values() if test}
    split = [test.split("::", 1) for test in named]
    assert not [
        f"{file}::{test}" for file, test in split if not (HERE.parent / file).exists() or test not in named_in(file)
    ]


def test_no_more_promises_are_without_a_test() -> None:
    without = [f"{kind}: {name}" for kind, names in read(FILE).items() for name, test in names.items() if not test]
    assert len(without) <= MISSED_BY_NO_TEST, without


KEPT: Kept = {
    "metric": {"foretype_a": "tests/test_a.py::test_a", "foretype_b": ""},
    "command": {"foretype old": ""},
    "option": {"foretype old --deep": "", "foretype older --deep": ""},
    "config field": {"pool.fast.size": ""},
}
NOW = {
    "metric": ["foretype_a", "foretype_c"],
    "command": list[str](),
    "option": list[str](),
    "config field": list[str](),
}
SAID = """
## 0.2.0

- metric: `foretype_elsewhere`

### Removed

- metric: `foretype_b`,
  `foretype_x`; nobody read them.
- command: `foretype old`: `foretype new` does it.
- config field: `pool.fast`

## 0.1.0

- command: `foretype older`
"""


def test_what_is_gone_is_named_until_the_changelog_says_so() -> None:
    assert gone(KEPT, NOW, {}) == [
        "metric: foretype_b",
        "command: foretype old",
        "option: foretype old --deep",
        "option: foretype older --deep",
        "config field: pool.fast.size",
    ]
    assert gone(KEPT, NOW, removed(SAID)) == ["option: foretype older --deep"], "only where its whole name stands"


def test_a_line_speaks_for_its_own_kind_and_section() -> None:
    said = removed(SAID)
    assert said["metric"] == {"foretype_b", "foretype_x"}
    assert gone({"error": {"foretype_b": ""}}, {"error": []}, said) == ["error: foretype_b"]


def test_a_kind_that_is_collected_no_more_is_gone_with_all_its_names() -> None:
    assert gone({"engine": {"ollama": ""}}, {}, {}) == ["engine: ollama"]


def test_writing_anew_keeps_tests_adds_what_is_new_and_drops_only_what_is_said_to_be_gone() -> None:
    assert new(KEPT, NOW) == ["metric: foretype_c"]
    assert renewed(KEPT, NOW, removed(SAID)) == {
        "metric": {"foretype_a": "tests/test_a.py::test_a", "foretype_c": ""},
        "command": {},
        "option": {"foretype older --deep": ""},
        "config field": {},
    }
