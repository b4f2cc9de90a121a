"""Next edits for a text in a browser: the rules of the language server, told anew with each question."""

from typing import Any

import pytest
from backend.world import gateway
from foretype_backend.playground.next_edits import Offered, PageEditRequest, next_edit
from foretype_context.edits.evidence import Evidence
from foretype_context.syntax.document import Edit
from msgspec import convert

TEXT = "def area(width, height):\n    size = width * height\n    print(width)\n    return size\n"
AT = TEXT.index("width")
RENAMED = {"kind": "typed", "ago_ms": 3000.0, "edits": [[AT, AT + 5, "breadth"]]}
RENAMED_TEXT = TEXT.replace("width", "breadth", 1)
SECOND = TEXT.index("width", AT + 1) + 2
TAKEN = {"kind": "accepted", "ago_ms": 10.0, "edits": [[SECOND, SECOND + 5, "breadth"]]}
REFUSED = {"kind": "refused", "ago_ms": 1000.0, "edits": [[SECOND, SECOND + 5, "breadth"]]}


def asked(*happened: dict[str, Any], **fields: Any) -> Offered:
    given = {"text": TEXT, "cursor": 0, "happened": happened, "eagerness": "medium", **fields}
    return next_edit(convert(given, PageEditRequest))


def test_a_rename_is_followed_place_by_place() -> None:
    found = asked(RENAMED).found
    assert found is not None and (found.edit, found.evidence) == (
        Edit(SECOND, SECOND + 5, "breadth"),
        Evidence.DECLARATION,
    )
    third = TEXT.index("width", SECOND) + 4
    found = asked(RENAMED, TAKEN).found  # at once, behind one that was taken
    assert found is not None and found.edit == Edit(third, third + 5, "breadth")


def test_it_waits_for_quiet_and_longer_in_the_line_that_was_changed() -> None:
    fresh = RENAMED | {"ago_ms": 100.0}
    assert asked(fresh, cursor=SECOND) == Offered(None, pytest.approx(0.3))
    assert asked(fresh, cursor=AT + 7) == Offered(None, pytest.approx(1.9))
    assert asked(fresh, eagerness="high") == Offered(None, pytest.approx(0.9))
    assert asked() == Offered(None)


def test_after_a_refusal_there_is_silence_and_never_again_the_same() -> None:
    assert asked(RENAMED, REFUSED) == Offered(None, pytest.approx(4.0))
    late = [one | {"ago_ms": one["ago_ms"] + 70_000} for one in (RENAMED, REFUSED)]
    assert asked(*late, cursor=SECOND) == Offered(None)  # nor another place of that rename
    size = RENAMED_TEXT.index("size")
    again = {"kind": "typed", "ago_ms": 2000.0, "edits": [[size, size + 4, "surface"]]}
    found = asked(*late, again, cursor=len(RENAMED_TEXT)).found
    assert found is not None and found.edit.start == RENAMED_TEXT.replace("size", "surface", 1).index("size")


def test_two_like_edits_are_enough_from_medium_on() -> None:
    text = "".join(f"log(a{n})\n" for n in range(4))
    edits = [{"kind": "typed", "ago_ms": 9000.0 - 3000 * n, "edits": [[n * 12, n * 12 + 3, "warn"]]} for n in range(2)]
    edits[1]["edits"] = [[text.index("log", 5) + 1, text.index("log", 5) + 4, "warn"]]
    assert asked(*edits, text=text, eagerness="low").found is None
    found = asked(*edits, text=text, eagerness="medium").found
    assert found is not None and found.evidence is Evidence.LIKE_EDITS


async def test_the_door_answers_in_characters_of_the_text() -> None:
    text = "# 🦊🦊\n" + TEXT
    shift = len(text) - len(TEXT)
    happened = [RENAMED | {"edits": [[AT + shift, AT + shift + 5, "breadth"]]}]
    async with gateway() as world, world.http() as http:
        question = {"text": text, "cursor": 0, "happened": happened, "language": "python", "eagerness": "medium"}
        answer = (await http.post("/playground/next_edit", json=question)).json()
        edit = {"start": SECOND + shift, "end": SECOND + shift + 5, "text": "breadth"}
        assert answer["edit"] == edit | {"evidence": "declaration", "left": answer["edit"]["left"], "jump_only": False}
        assert answer["wait_ms"] == 0


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"text": 5}, "text"),
        ({"text": "x" * 100_001}, "text"),
        ({"cursor": 10_000}, "cursor"),
        ({"cursor": -1}, "cursor"),
        ({"happened": [RENAMED] * 129}, "happened"),
        ({"happened": [RENAMED | {"edits": []}]}, "edits"),
        ({"happened": [RENAMED | {"kind": "guessed"}]}, "kind"),
        ({"happened": [RENAMED | {"ago_ms": -1}]}, "ago_ms"),
        ({"happened": [RENAMED, RENAMED | {"edits": [[90, 9_000, ""]]}]}, "happened[1].edits"),
        ({"happened": [REFUSED | {"edits": [[9, 5, ""]]}]}, "happened[0].edits"),
        ({"eagerness": "much"}, "eagerness"),
    ],
)
async def test_a_bad_question_is_answered_with_its_field(fields: dict[str, Any], field: str) -> None:
    async with gateway() as world, world.http() as http:
        body = {"text": TEXT, "cursor": 0, "happened": [RENAMED], **fields}
        answer = await http.post("/playground/next_edit", json=body)
        assert answer.status_code == 400 and field in str(answer.json()["error"])


async def test_strangers_are_asked_who_they_are() -> None:
    async with gateway(token="sesame-open-up-please") as world, world.http() as http:
        question = {"text": "", "cursor": 0, "happened": []}
        assert (await http.post("/playground/next_edit", json=question)).status_code == 401
