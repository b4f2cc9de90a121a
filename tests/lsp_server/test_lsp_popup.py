"""Suggestions as items of the ordinary completion menu (`foretype lsp --popup`)."""

import pytest
from foretype_lsp.documents.positions import Encoding, Lines
from foretype_lsp.suggestions.items import cursor_line, item, menu_item
from lsp_server.conftest import Client, settle

URI = "file:///w/a.py"


@pytest.fixture
async def popup():
    made = Client(popup=True)
    made.initialize()
    return made


def ask(client, line, character):
    where = {"line": line, "character": character}
    return client.request(
        "textDocument/completion", textDocument={"uri": URI}, position=where, context={"triggerKind": 1}
    )


async def suggested(popup, line, character, answer):
    id = ask(popup, line, character)
    await settle()
    await popup.answering(0, answer)
    return id


async def test_only_the_menu_is_advertised_with_popup_and_only_inline_without(fresh):
    with_popup = Client(popup=True).initialize()["capabilities"]
    without = fresh.initialize()["capabilities"]
    assert " " in with_popup["completionProvider"]["triggerCharacters"]
    assert "inlineCompletionProvider" not in with_popup
    assert "completionProvider" not in without
    assert fresh.answers(ask(fresh, 0, 0))[0]["error"]["code"] == -32601


async def test_a_suggestion_is_one_incomplete_item_that_stands_first(popup):
    popup.open("def f():\n    return fib(")
    id = await suggested(popup, 1, 15, "n - 1)\n\nx = f()")
    result = popup.answers(id)[0]["result"]
    assert result["isIncomplete"] is True
    (made,) = result["items"]
    assert made["label"] == made["filterText"] == "return fib(n - 1)"
    assert made["sortText"] == "\x00"
    assert made["textEdit"] == {
        "range": {"start": {"line": 1, "character": 4}, "end": {"line": 1, "character": 15}},
        "newText": "return fib(n - 1)\n\nx = f()",
    }
    assert made["detail"] == "Foretype, 2 lines"
    assert made["command"]["arguments"] == ["s0"]


async def test_a_menu_puts_in_the_line_ends_of_the_document(popup):
    popup.open("def f():\r\n    return fib(")
    id = await suggested(popup, 1, 15, "n - 1)\n\nx = f()")
    (made,) = popup.answers(id)[0]["result"]["items"]
    assert made["textEdit"]["newText"] == "return fib(n - 1)\r\n\r\nx = f()"
    assert made["label"] == made["filterText"] == "return fib(n - 1)"


async def test_nothing_to_offer_is_an_empty_incomplete_list(popup):
    unknown = ask(popup, 0, 0)
    popup.open("x = ")
    id = await suggested(popup, 0, 4, None)
    for answered in (unknown, id):
        assert popup.answers(answered)[0]["result"] == {"isIncomplete": True, "items": []}


async def test_a_newer_question_or_a_change_makes_the_older_one_void(popup, settled):
    popup.open("x = ")
    older = ask(popup, 0, 4)
    newer = ask(popup, 0, 3)
    await settled()
    assert popup.answers(older)[0]["result"]["items"] == []
    popup.insert(0, 4, "1")
    popup.flow.answer(len(popup.flow.asked) - 1, "2")
    await settled()
    assert popup.answers(newer)[0]["result"]["items"] == []


async def test_the_question_is_about_the_document_of_its_own_moment(popup, settled):
    popup.open("x = ")
    id = ask(popup, 0, 4)
    popup.insert(0, 4, "1")
    await settled()
    assert popup.flow.asked == []
    assert popup.answers(id)[0]["result"]["items"] == []


@pytest.mark.parametrize("params", [{}, {"textDocument": {"uri": URI}}, {"textDocument": 1, "position": 2}])
async def test_bad_parameters_are_refused(popup, params):
    id = popup.request("textDocument/completion", **params)
    assert popup.answers(id)[0]["error"]["code"] == -32602


def test_the_label_is_the_first_line_that_is_not_blank():
    made = menu_item(item(cursor_line(Lines("def f():", Encoding.UTF16), 8), "id", "\n    pass", 0), str)
    assert made["label"] == "def f():"
    made = menu_item(item(cursor_line(Lines("", Encoding.UTF16), 0), "id", "\n    pass", 0), str)
    assert made["label"] == "pass"
