"""`textDocument/copilotInlineEdit` through the server: one place, of the text that the editor has, or nothing."""

import asyncio

import pytest
from foretype_lsp.next_edit.handlers import DID_SHOW, ENDED, JUMPED, QUESTION
from foretype_lsp.next_edit.offers import ACCEPT_COMMAND

URI = "file:///w/a.py"
AREA = "def area(width, height):\n    if width < 0:\n        return 0\n    return width * height\n"


class Typist:
    """Types in one document and asks for the next edit."""

    def __init__(self, client, text=AREA, uri=URI, language="python"):
        self.client, self.uri, self.version = client, uri, 1
        client.open(text, uri=uri, language=language)

    @property
    def text(self):
        return self.client.text(self.uri)

    def replace(self, line, start, end, text):
        self.version += 1
        at = {"start": {"line": line, "character": start}, "end": {"line": line, "character": end}}
        self.client.change({"range": at, "text": text}, uri=self.uri, version=self.version)

    def retype(self, line, start, old, new):
        """Key by key."""
        for end in range(start + len(old), start, -1):
            self.replace(line, end - 1, end, "")
        for offset, character in enumerate(new):
            self.replace(line, start + offset, start + offset, character)

    def ask(self, line=0, character=0, version=None):
        document = {"uri": self.uri, "version": self.version if version is None else version}
        return self.client.request(QUESTION, textDocument=document, position={"line": line, "character": character})

    async def next(self, line=0, character=0):
        return await self.answer(self.ask(line, character))

    async def answer(self, id):
        """The edit, or None."""
        edits = (await answered(self.client, id))["result"]["edits"]
        assert len(edits) <= 1
        return edits[0] if edits else None

    def show(self, edit):
        self.client.notify(DID_SHOW, item={"command": edit["command"]})

    def end(self, edit, reason="rejected"):
        self.client.notify(ENDED, id=edit["data"]["id"], reason=reason)

    def take(self, edit):
        assert edit["textDocument"] == {"uri": self.uri, "version": self.version}
        start, end = edit["range"]["start"], edit["range"]["end"]
        assert start["line"] == end["line"]
        self.replace(start["line"], start["character"], end["character"], edit["text"])
        self.client.request("workspace/executeCommand", **{k: edit["command"][k] for k in ("command", "arguments")})


async def answered(client, id):
    async with asyncio.timeout(60):
        while not client.answers(id):
            client.arrived.clear()
            await client.arrived.wait()
    (answer,) = client.answers(id)
    return answer


@pytest.fixture
async def typist(client):
    client.initialize()
    return Typist(client)


async def test_the_capability_and_the_command_are_advertised(client):
    capabilities = client.initialize()["capabilities"]
    assert capabilities["experimental"] == {"foretype": {"nextEdit": True}}
    assert ACCEPT_COMMAND in capabilities["executeCommandProvider"]["commands"]


async def test_a_renamed_parameter_is_followed_place_by_place_and_then_there_is_silence(typist):
    typist.retype(0, 9, "width", "size")
    first = await typist.next(0, 13)
    assert first == {
        "text": "size",
        "range": {"start": {"line": 1, "character": 7}, "end": {"line": 1, "character": 12}},
        "textDocument": {"uri": URI, "version": typist.version},
        "command": {"title": "Accept next edit", "command": ACCEPT_COMMAND, "arguments": [first["data"]["id"]]},
        "data": {"id": first["data"]["id"], "evidence": "rename", "left": 1, "jumpOnly": False},
    }
    typist.show(first)
    typist.client.notify(JUMPED, id=first["data"]["id"])
    typist.take(first)
    second = await typist.next(1, 11)
    assert (second["range"]["start"], second["data"]["left"]) == ({"line": 3, "character": 11}, 0)
    typist.take(second)
    assert typist.text == AREA.replace("width", "size")
    assert await typist.next(3, 11) is None


async def test_after_an_acceptance_the_next_one_does_not_wait(typist):
    typist.retype(0, 9, "width", "size")
    typist.take(await typist.next(0, 13))
    began = asyncio.get_running_loop().time()
    assert await typist.next(1, 11) is not None
    waited_s = asyncio.get_running_loop().time() - began
    began = asyncio.get_running_loop().time()
    typist.replace(3, 0, 0, " ")
    typist.replace(3, 0, 1, "")
    await typist.next(1, 11)
    assert waited_s < asyncio.get_running_loop().time() - began  # which waits for the burst to settle


async def test_a_version_must_be_named(client, settled):
    client.initialize()
    client.open(AREA)
    id = client.request(QUESTION, textDocument={"uri": URI}, position={"line": 0, "character": 0})
    error = client.answers(id)[0]["error"]
    assert error["code"] == -32602 and "version" in error["message"]


@pytest.mark.parametrize("away", [-1, 1, 100])
async def test_a_question_about_another_version_gets_nothing(typist, away):
    typist.retype(0, 9, "width", "size")
    assert await typist.answer(typist.ask(0, 13, version=typist.version + away)) is None
    assert await typist.next(0, 13) is not None


async def test_an_unknown_document_gets_nothing(client):
    client.initialize()
    id = client.request(
        QUESTION, textDocument={"uri": "file:///w/none.py", "version": 1}, position={"line": 0, "character": 0}
    )
    assert client.answers(id)[0]["result"] == {"edits": []}


async def test_a_change_answers_the_question_that_waits_with_nothing_at_once(typist):
    typist.retype(0, 9, "width", "size")
    older = typist.ask(0, 13)
    typist.replace(3, 24, 24, " ")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await typist.answer(older) is None
    typist.replace(3, 24, 25, "")
    assert await typist.next(0, 13) is not None


async def test_a_newer_question_answers_the_older_one_with_nothing(typist):
    typist.retype(0, 9, "width", "size")
    ids = [typist.ask(0, 13) for _ in range(20)]
    assert [await typist.answer(id) is None for id in ids] == [True] * 19 + [False]


async def test_cancelling_is_answered_with_its_code(typist):
    typist.retype(0, 9, "width", "size")
    id = typist.ask(0, 13)
    typist.client.notify("$/cancelRequest", id=id)
    assert (await answered(typist.client, id))["error"]["code"] == -32800


async def test_what_was_refused_stays_refused_and_there_is_silence(typist):
    typist.retype(0, 9, "width", "size")
    edit = await typist.next(0, 13)
    typist.show(edit)
    typist.end(edit)
    assert await typist.next(0, 13) is None
    assert await typist.next(3, 0) is None


async def test_what_the_cursor_left_is_offered_again(typist):
    typist.retype(0, 9, "width", "size")
    edit = await typist.next(0, 13)
    typist.show(edit)
    typist.end(edit, "moved")
    assert await typist.next(0, 13) is not None


async def test_nothing_after_an_undo(typist):
    typist.replace(0, 9, 14, "size")
    assert await typist.next(0, 13) is not None
    typist.replace(0, 9, 13, "width")
    assert await typist.next(0, 13) is None


async def test_an_accepted_edit_that_is_undone_is_not_offered_again(typist):
    typist.replace(0, 9, 14, "size")
    edit = await typist.next(0, 13)
    typist.take(edit)
    typist.replace(1, 7, 11, "width")
    assert await typist.next(1, 7) is None


@pytest.mark.parametrize("reason", ["", "no", None, 3])
async def test_a_reason_that_is_none_is_named_and_changes_nothing(typist, reason, caplog):
    typist.retype(0, 9, "width", "size")
    edit = await typist.next(0, 13)
    typist.end(edit, reason)
    assert "reason" in caplog.text
    assert await typist.next(0, 13) is not None


async def test_the_command_takes_an_id_and_one_that_nobody_knows_is_nothing(typist):
    bad = typist.client.request("workspace/executeCommand", command=ACCEPT_COMMAND, arguments=[3])
    good = typist.client.request("workspace/executeCommand", command=ACCEPT_COMMAND, arguments=["n99"])
    assert typist.client.answers(bad)[0]["error"]["code"] == -32602
    assert typist.client.answers(good)[0]["result"] is None


@pytest.mark.parametrize("options", [{"nextEdit": {"enabled": False}}, {"nextEdit": False}, {"enable": False}])
async def test_off_means_off(client, options):
    client.initialize(options=options)
    typist = Typist(client)
    typist.retype(0, 9, "width", "size")
    assert await typist.next(0, 13) is None


async def test_two_like_edits_are_enough_from_medium_on(client):
    text = "def f(a, b, c):\n    print(a.x)\n    print(b.x)\n    print(c.x)\n"
    client.initialize(options={"nextEdit": {"eagerness": "low"}})
    typist = Typist(client, text)
    for line in (1, 2):
        typist.retype(line, 12, "x", "y")
    assert await typist.next(2, 13) is None
    client.notify("workspace/didChangeConfiguration", settings={"foretype": {"nextEdit": {"eagerness": "medium"}}})
    edit = await typist.next(2, 13)
    assert (edit["data"]["evidence"], edit["range"]["start"]["line"]) == ("like_edits", 3)


@pytest.mark.parametrize(("encoding", "character"), [("utf-8", 19), ("utf-16", 15), ("utf-32", 14)])
async def test_positions_are_counted_the_clients_way(client, encoding, character):
    client.initialize(encodings=[encoding])
    typist = Typist(client, 'def f(width):\n    x = "😀语", width\n')
    typist.retype(0, 6, "width", "size")
    edit = await typist.next(0, 10)
    assert edit["range"]["start"] == {"line": 1, "character": character}
    typist.take(edit)
    assert typist.text == 'def f(size):\n    x = "😀语", size\n'


async def test_line_ends_of_windows_stay(client):
    client.initialize()
    typist = Typist(client, AREA.replace("\n", "\r\n"))
    typist.retype(0, 9, "width", "size")
    while (edit := await typist.next(0, 13)) is not None:
        typist.take(edit)
    assert typist.text == AREA.replace("width", "size").replace("\n", "\r\n")


async def test_nothing_where_an_inline_suggestion_stands(typist, settled):
    typist.retype(0, 9, "width", "size")
    typist.client.ask(0, 13)
    await settled()
    typist.client.flow.answer(0, "_of_it")
    await settled()
    assert await typist.next(0, 13) is None
    assert await typist.next(1, 0) is not None  # it went with the cursor


async def test_no_inline_suggestion_while_a_next_edit_is_on_the_screen(typist, settled):
    typist.retype(0, 9, "width", "size")
    edit = await typist.next(0, 13)
    typist.show(edit)
    automatic = typist.client.ask(0, 13)
    await settled()
    typist.client.flow.answer(0, "_of_it")
    await settled()
    assert typist.client.answers(automatic)[0]["result"] == {"items": []}
    typist.end(edit, "moved")
    again = typist.client.ask(0, 13)
    await settled()
    typist.client.flow.answer(1, "_of_it")
    await settled()
    assert len(typist.client.answers(again)[0]["result"]["items"]) == 1


async def test_typing_makes_room_for_an_inline_suggestion(typist, settled):
    typist.retype(0, 9, "width", "size")
    typist.show(await typist.next(0, 13))
    typist.replace(0, 13, 13, "d")
    automatic = typist.client.ask(0, 14)
    await settled()
    typist.client.flow.answer(0, "_of_it")
    await settled()
    assert len(typist.client.answers(automatic)[0]["result"]["items"]) == 1


async def test_a_large_file_is_silent(client):
    client.initialize()
    typist = Typist(client, AREA + "# filler\n" * 120_000)
    typist.retype(0, 9, "width", "size")
    assert await typist.next(0, 13) is None
    windowed = Typist(client, AREA + "# filler\n" * 600_000, uri="file:///w/b.py")
    windowed.retype(0, 9, "width", "size")
    assert await windowed.next(0, 13) is None


async def test_a_document_that_was_closed_and_opened_again_begins_anew(typist):
    typist.retype(0, 9, "width", "size")
    text = typist.text
    typist.client.notify("textDocument/didClose", textDocument={"uri": URI})
    again = Typist(typist.client, text)
    assert await again.next(0, 13) is None


async def test_a_text_that_was_lost_is_silent_until_it_comes_whole(typist):
    typist.retype(0, 9, "width", "size")
    text = typist.text
    typist.client.notify("textDocument/didChange", textDocument={"uri": URI, "version": 90}, contentChanges=3)
    typist.version = 1
    assert await typist.next(0, 13) is None
    typist.client.change({"text": text}, version=91)
    typist.version = 91
    assert await typist.next(0, 13) is None  # nobody typed it


async def test_an_editor_that_sends_whole_texts_is_followed_too(client):
    client.initialize()
    typist = Typist(client)
    for version, name in enumerate(("widt", "wid", "wi", "w", "s", "si", "siz", "size"), 2):
        client.change({"text": AREA.replace("width", name, 1)}, version=version)
        typist.version = version
    edit = await typist.next(0, 13)
    assert edit["range"]["start"] == {"line": 1, "character": 7}
