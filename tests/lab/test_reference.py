"""docs/reference/ is what the code says; what a class does not describe cannot be shown."""

from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from foretype_lab.errors import LabError
from foretype_lab.reference.documented import documented, linked
from foretype_lab.reference.pages import PAGES

FOLDER = Path(__file__).parents[2] / "docs/reference"


class Some(msgspec.Struct, rename="camel"):
    """Some settings.

    Attributes:
        poll_s: how often it is looked for; see docs/operations.md.
        from_here, to_there: where it
            goes. Unset: nowhere.
    """

    poll_s: float = 2.0
    from_here: str | None = None
    to_there: str = ""


@dataclass
class Silent:
    """Says nothing of one.

    Attributes:
        told: something.
    """

    told: int
    untold: int = 3


@dataclass
class Chatty:
    """Says too much.

    Attributes:
        told: something.
        gone: something else.
    """

    told: int


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_the_code_says(name: str) -> None:
    assert (FOLDER / name).read_text("utf-8") == PAGES[name](), "make reference"


def test_nothing_else_lies_there() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(PAGES)


def test_a_field_is_shown_with_its_default_or_what_counts_without_a_value() -> None:
    assert [tuple(row[:3]) for row in documented(Some)] == [
        ("pollS", "2", "How often it is looked for; see [operations](../operations.md)."),
        ("fromHere", "nowhere", "Where it goes."),
        ("toThere", "nowhere", "Where it goes."),
    ]


def test_a_field_that_nobody_describes_is_named() -> None:
    with pytest.raises(LabError, match=r"Silent does not say what untold is"):
        documented(Silent)


def test_a_description_without_its_field_is_named() -> None:
    with pytest.raises(LabError, match=r"Chatty describes gone"):
        documented(Chatty)


def test_a_path_that_is_no_page_is_no_link() -> None:
    assert linked("see `docs/a.md`, src/docs/b.md and docs/c.md") == "see `docs/a.md`, src/docs/b.md and [c](../c.md)"
