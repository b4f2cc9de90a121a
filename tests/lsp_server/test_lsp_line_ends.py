"""Line ends are the editor's own affair: the same code is one question, one answer and one item, whichever they are."""

from typing import Any

import pytest

ENDS = ["\n", "\r\n", "\r"]
CODE = "import os\n\ndef add(a, b):\n    \n\nprint(add(1, 2))\n"
ANSWER = "total = a + b\n    return total"


async def asked(client: Any, code: str, answer: str, **options: Any) -> tuple[Any, list[Any]]:
    client.initialize(options=options)
    client.open(code)
    id = await client.suggested(3, 4, answer=answer)
    snapshot, offset, *_ = client.flow.asked[0]
    return (snapshot.text, offset), client.answers(id)[0]["result"]["items"]


@pytest.mark.parametrize("end", ENDS)
async def test_the_same_code_is_the_same_question_and_the_same_item(fresh: Any, end: str) -> None:
    question, (item,) = await asked(fresh, CODE.replace("\n", end), ANSWER)
    assert question == (CODE, CODE.index("\n\nprint"))
    assert item["insertText"] == ANSWER
    assert item["range"]["start"] == item["range"]["end"] == {"line": 3, "character": 4}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(("answer", "texts"), [(ANSWER, ["total = a + b"]), ("\n    return a", [])])
async def test_one_line_alone_has_nothing_of_its_end(fresh: Any, end: str, answer: str, texts: list[str]) -> None:
    _, items = await asked(fresh, CODE.replace("\n", end), answer, multiLine=False)
    assert [item["insertText"] for item in items] == texts


@pytest.mark.parametrize("end", ["\n", "\r\n"])
async def test_changes_are_followed_in_documents_of_any_line_end(client: Any, end: str) -> None:
    client.open(CODE.replace("\n", end))
    client.change({"range": at(2, 14, 3, 4), "text": f"{end}    a = 1{end}"})
    client.change({"range": at(5, 0, 6, 0), "text": ""}, version=3)
    client.change({"text": CODE.replace("\n", end) + "x"}, version=4)
    assert client.text() == CODE + "x"


def at(line: int, character: int, last: int, behind: int) -> dict[str, Any]:
    return {"start": {"line": line, "character": character}, "end": {"line": last, "character": behind}}
