"""`textDocument/copilotInlineEdit` through the server: one place, of the text that the editor has, or nothing."""

import asyncio

import pytest
from foretype_context.edits import pace
from foretype_lsp.documents.positions import Lines, Position, split_lines
from foretype_lsp.next_edit.handlers import DID_SHOW, JUMPED, QUESTION
from foretype_lsp.next_edit.offers import ACCEPT_COMMAND
from hypothesis import given, settings
from hypothesis import strategies as st
from lsp_server.conftest import Client
from lsp_server.next_edit_support import AREA, MEDIUM, URI, Typist, answered


@pytest.fixture
async def typist(fresh):
    fresh.initialize(options=MEDIUM)
    return Typist(fresh)


async def test_the_capability_and_the_command_are_advertised(fresh):
    capabilities = fresh.initialize(options=MEDIUM)["capabilities"]
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
        "data": {
            "id": first["data"]["id"],
            "evidence": "declaration",
            "left": 1,
            "jumpOnly": False,
            "replaces": "width",
        },
    }
    typist.show(first)
    typist.client.notify(JUMPED, id=first["data"]["id"])
    typist.take(first)
    second = await typist.next(1, 11)
    assert (second["range"]["start"], second["data"]["left"]) == ({"line": 3, "character": 11}, 0)
    typist.take(second)
    assert typist.text == AREA.replace("width", "size")
    assert await typist.next(3, 11) is None


async def test_unless_told_otherwise_a_rename_is_shown_once_one_reference_was_changed_by_hand(client):
    typist = Typist(client)
    typist.retype(0, 9, "width", "size")
    assert await typist.next(1, 7) is None
    typist.retype(1, 7, "width", "size")
    edit = await typist.next(2, 0)
    assert (edit["text"], edit["range"]["start"]) == ("size", {"line": 3, "character": 11})
    assert edit["data"]["evidence"] == "rename"
    typist.take(edit)
    assert typist.text == AREA.replace("width", "size")


async def test_who_stays_in_the_line_may_be_changing_more_of_it_and_who_leaves_it_has_finished(
    typist, settled, monkeypatch
):
    monkeypatch.setattr(pace, "LINE_S", dict.fromkeys(pace.Eagerness, 1e6))
    monkeypatch.setattr(pace, "_WAIT_MOST_S", 1e6)
    typist.retype(0, 9, "width", "size")
    in_line = typist.ask(0, 20)
    await settled()
    assert not typist.client.answers(in_line)
    assert await typist.next(1, 0) is not None
    assert await typist.answer(in_line) is None


async def test_who_asks_by_hand_does_not_wait_for_the_line(fresh, monkeypatch, settled):
    fresh.initialize(options=MEDIUM)
    typist = Typist(fresh)
    typist.retype(0, 9, "width", "size")
    monkeypatch.setattr(pace, "LINE_S", dict.fromkeys(pace.Eagerness, 1e6))
    monkeypatch.setattr(pace, "_WAIT_MOST_S", 1e6)
    about = {"textDocument": {"uri": URI, "version": typist.version}, "position": {"line": 0, "character": 13}}
    waiting = [fresh.request(QUESTION, **about, context=context) for context in ({}, {"triggerKind": 2})]
    assert await typist.answer(waiting[0]) is None
    await settled()
    assert not fresh.answers(waiting[1])
    assert await typist.answer(fresh.request(QUESTION, **about, context={"triggerKind": 1})) is not None


async def test_after_an_acceptance_the_next_one_does_not_wait(typist, settled, monkeypatch):
    typist.retype(0, 9, "width", "size")
    typist.take(await typist.next(0, 13))
    for name, slow in (("SETTLED_S", 1e6), ("LINE_S", dict.fromkeys(pace.Eagerness, 1e6)), ("_WAIT_MOST_S", 1e6)):
        monkeypatch.setattr(pace, name, slow)
    assert await typist.next(1, 11) is not None
    typist.replace(3, 0, 0, " ")
    typist.replace(3, 0, 1, "")
    id = typist.ask(1, 11)
    await settled()
    assert not typist.client.answers(id)  # it waits for the burst to settle
    typist.replace(3, 0, 0, " ")
    assert await typist.answer(id) is None


async def test_a_version_must_be_named(fresh):
    fresh.initialize(options=MEDIUM)
    fresh.open(AREA)
    id = fresh.request(QUESTION, textDocument={"uri": URI}, position={"line": 0, "character": 0})
    error = fresh.answers(id)[0]["error"]
    assert error["code"] == -32602 and "version" in error["message"]


@pytest.mark.parametrize("away", [-1, 1, 100])
async def test_a_question_about_another_version_gets_nothing(typist, away):
    typist.retype(0, 9, "width", "size")
    assert await typist.answer(typist.ask(0, 13, version=typist.version + away)) is None
    assert await typist.next(0, 13) is not None


async def test_an_unknown_document_gets_nothing(fresh):
    fresh.initialize(options=MEDIUM)
    id = fresh.request(
        QUESTION, textDocument={"uri": "file:///w/none.py", "version": 1}, position={"line": 0, "character": 0}
    )
    assert fresh.answers(id)[0]["result"] == {"edits": []}


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


async def test_the_same_edit_asked_for_again_is_the_same(typist):
    typist.retype(0, 9, "width", "size")
    assert await typist.next(0, 13) == await typist.next(0, 0)


class Log:
    """Takes what becomes of next edits."""

    def __init__(self, client):
        self.outcomes = []
        client.server.next_edits.tell(self)

    def ended(self, outcome):
        self.outcomes.append(outcome)


async def test_what_became_of_those_that_were_shown_is_told_once(typist):
    log = Log(typist.client)
    typist.retype(0, 9, "width", "size")
    first = await typist.next(0, 13)
    assert log.outcomes == []
    typist.show(first)
    typist.take(first)
    second = await typist.next(1, 11)
    typist.show(second)
    typist.client.notify(JUMPED, id=second["data"]["id"])
    typist.end(second)
    typist.end(second, "moved")
    typist.replace(3, 0, 0, " ")
    told = [(one.id, one.chain, one.order, one.end, one.jumped, one.elsewhere) for one in log.outcomes]
    ids = [one["data"]["id"] for one in (first, second)]
    assert told == [(ids[0], ids[0], 1, "accepted", False, False), (ids[1], ids[0], 2, "rejected", True, False)]
    taken = log.outcomes[0].taken
    assert (taken.before, taken.after, taken.old, taken.new) == (
        "    if width < 0:", "    if size < 0:", "width", "size",
    )  # fmt: skip
    assert typist.text[taken.start :].startswith(taken.after)
    assert log.outcomes[1].taken is None


async def test_where_only_the_place_is_known_nothing_is_to_be_applied(fresh):
    fresh.initialize(options=MEDIUM)
    typist = Typist(fresh, "def f(a):\n    return a\n\n\nprint(f(1))\n")
    log = Log(fresh)
    typist.replace(0, 7, 7, ", b")
    edit = await typist.next(3, 0)
    assert (edit["text"], edit["range"]["start"]) == ("", edit["range"]["end"])
    assert (edit["data"]["evidence"], edit["data"]["jumpOnly"], edit["data"]["replaces"]) == ("signature", True, "")
    assert edit["range"]["start"]["line"] == 4
    typist.show(edit)
    fresh.notify(JUMPED, id=edit["data"]["id"])
    assert [(one.end, one.jump, one.jumped, one.inserted, one.taken) for one in log.outcomes] == [
        ("accepted", True, True, 0, None)
    ]


async def test_one_that_was_never_shown_is_not_told(typist):
    log = Log(typist.client)
    typist.retype(0, 9, "width", "size")
    await typist.next(0, 13)
    typist.replace(3, 0, 0, " ")
    assert log.outcomes == []


async def test_typing_ends_what_was_shown(typist):
    log = Log(typist.client)
    typist.retype(0, 9, "width", "size")
    typist.show(await typist.next(0, 13))
    typist.replace(3, 0, 0, " ")
    assert [one.end for one in log.outcomes] == ["typed"]


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
async def test_off_means_off(fresh, options):
    fresh.initialize(options=options)
    typist = Typist(fresh)
    typist.retype(0, 9, "width", "size")
    assert await typist.next(0, 13) is None


@pytest.mark.parametrize(("encoding", "character"), [("utf-8", 19), ("utf-16", 15), ("utf-32", 14)])
async def test_positions_are_counted_the_clients_way(fresh, encoding, character):
    fresh.initialize(encodings=[encoding], options=MEDIUM)
    typist = Typist(fresh, 'def f(width):\n    x = "😀语", width\n')
    typist.retype(0, 6, "width", "size")
    edit = await typist.next(0, 10)
    assert edit["range"]["start"] == {"line": 1, "character": character}
    typist.take(edit)
    assert typist.text == 'def f(size):\n    x = "😀语", size\n'


async def test_line_ends_of_windows_change_nothing(fresh):
    fresh.initialize(options=MEDIUM)
    typist = Typist(fresh, AREA.replace("\n", "\r\n"))
    typist.retype(0, 9, "width", "size")
    while (edit := await typist.next(0, 13)) is not None:
        typist.take(edit)
    assert typist.text == AREA.replace("width", "size")


async def test_nothing_where_an_inline_suggestion_stands(typist):
    typist.retype(0, 9, "width", "size")
    await typist.client.suggested(0, 13, answer="_of_it")
    assert await typist.next(0, 13) is None
    assert await typist.next(1, 0) is not None  # it went with the cursor


async def test_no_inline_suggestion_while_a_next_edit_is_on_the_screen(typist):
    typist.retype(0, 9, "width", "size")
    edit = await typist.next(0, 13)
    typist.show(edit)
    automatic = await typist.client.suggested(0, 13, answer="_of_it")
    assert typist.client.answers(automatic)[0]["result"] == {"items": []}
    typist.end(edit, "moved")
    again = await typist.client.suggested(0, 13, answer="_of_it")
    assert len(typist.client.answers(again)[0]["result"]["items"]) == 1


async def test_typing_makes_room_for_an_inline_suggestion(typist):
    typist.retype(0, 9, "width", "size")
    typist.show(await typist.next(0, 13))
    typist.replace(0, 13, 13, "d")
    automatic = await typist.client.suggested(0, 14, answer="_of_it")
    assert len(typist.client.answers(automatic)[0]["result"]["items"]) == 1


async def test_a_large_file_is_silent(fresh):
    fresh.initialize(options=MEDIUM)
    typist = Typist(fresh, AREA + "# filler\n" * 120_000)
    typist.retype(0, 9, "width", "size")
    assert await typist.next(0, 13) is None
    windowed = Typist(fresh, AREA + "# filler\n" * 600_000, uri="file:///w/b.py")
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


async def test_an_editor_that_sends_whole_texts_is_followed_too(fresh):
    fresh.initialize(options=MEDIUM)
    typist = Typist(fresh)
    for version, name in enumerate(("widt", "wid", "wi", "w", "s", "si", "siz", "size"), 2):
        fresh.change({"text": AREA.replace("width", name, 1)}, version=version)
        typist.version = version
    edit = await typist.next(0, 13)
    assert edit["range"]["start"] == {"line": 1, "character": 7}


class Notebook:
    """Cells of code; what is typed in one is a change of the notebook."""

    def __init__(self, client, *texts, languages=("python",) * 9, uri="file:///w/a.ipynb"):
        self.client, self.uri, self.versions = client, uri, [1] * len(texts)
        self.texts = list(texts)
        cells = [{"kind": 2, "document": self.cell(at)} for at in range(len(texts))]
        documents = [
            {"uri": self.cell(at), "languageId": languages[at], "version": 1, "text": text}
            for at, text in enumerate(texts)
        ]
        notebook = {"uri": self.uri, "notebookType": "jupyter-notebook", "version": 1, "cells": cells}
        client.notify("notebookDocument/didOpen", notebookDocument=notebook, cellTextDocuments=documents)

    def cell(self, at):
        return f"{self.uri}#c{at}"

    def replace(self, at, line, start, end, text):
        self.versions[at] += 1
        span = {"start": {"line": line, "character": start}, "end": {"line": line, "character": end}}
        document = {"uri": self.cell(at), "version": self.versions[at]}
        content = {"document": document, "changes": [{"range": span, "text": text}]}
        self.client.notify(
            "notebookDocument/didChange",
            notebookDocument={"uri": self.uri, "version": 2},
            change={"cells": {"textContent": [content]}},
        )

    async def next(self, at, line=0, character=0):
        document = {"uri": self.cell(at), "version": self.versions[at]}
        position = {"line": line, "character": character}
        id = self.client.request(QUESTION, textDocument=document, position=position)
        return (await answered(self.client, id))["result"]["edits"]


async def test_a_cell_of_a_notebook_has_positions_and_versions_of_its_own(fresh):
    fresh.initialize(options=MEDIUM)
    it = Notebook(fresh, "import os\n%time os.getcwd()\n", "# 😀\n" + AREA)
    it.replace(1, 1, 9, 14, "size")
    (edit,) = await it.next(1, 1, 0)
    assert edit["textDocument"] == {"uri": it.cell(1), "version": 2}
    assert edit["range"] == {"start": {"line": 2, "character": 7}, "end": {"line": 2, "character": 12}}


async def test_a_rename_is_followed_from_cell_to_cell_each_by_its_own_positions_and_version(client):
    it = Notebook(client, "width = 1\nprint(width)\n", "# width\n%time width\n", "x = 0\ny = width\n", "print(width)")
    it.replace(3, 0, 6, 11, "width")  # each cell has a version of its own
    it.replace(0, 0, 0, 5, "size")
    assert await it.next(0, 1, 0) == []
    it.replace(0, 1, 6, 11, "size")
    for at, line, character in ((2, 1, 4), (3, 0, 6)):
        (edit,) = await it.next(0, 0, 0)
        assert edit["textDocument"] == {"uri": it.cell(at), "version": it.versions[at]}
        assert edit["range"]["start"] == {"line": line, "character": character}
        assert (edit["text"], edit["data"]["replaces"], edit["data"]["evidence"]) == ("size", "width", "rename")
        it.replace(at, line, character, character + 5, edit["text"])
        client.request("workspace/executeCommand", **{k: edit["command"][k] for k in ("command", "arguments")})
    assert await it.next(3, 0, 0) == []


async def test_an_edit_of_another_cell_is_far_and_taken_in_it(fresh):
    fresh.initialize(options=MEDIUM)
    log = Log(fresh)
    it = Notebook(fresh, "width = 1\n", "print(width)\n")
    it.replace(0, 0, 0, 5, "size")
    (edit,) = await it.next(0, 0, 0)
    assert edit["textDocument"]["uri"] == it.cell(1)
    fresh.notify(DID_SHOW, item={"command": edit["command"]})
    it.replace(1, 0, 6, 11, "size")
    assert [(one.end, one.jump, one.elsewhere) for one in log.outcomes] == [("accepted", True, False)]


async def test_an_edit_in_the_cell_of_a_notebook_that_imports_what_was_renamed(fresh, tmp_path):
    fresh.initialize(rootUri=tmp_path.as_uri(), options=MEDIUM)
    it = Notebook(fresh, "import os\n", "from a import area\n\narea(1, 2)\n", uri=(tmp_path / "n.ipynb").as_uri())
    typist = Typist(fresh, AREA, uri=(tmp_path / "a.py").as_uri())
    typist.retype(0, 4, "area", "surface")
    edit = await typist.next(2, 0)
    assert edit["textDocument"] == {"uri": it.cell(1), "version": 1}
    assert edit["range"]["start"] == {"line": 0, "character": 14}


async def test_a_line_that_only_ipython_understands_is_left_alone(fresh):
    fresh.initialize(options=MEDIUM)
    it = Notebook(fresh, "def f(width):\n    return width\n%time f(width=1)\n")
    it.replace(0, 0, 6, 11, "size")
    (edit,) = await it.next(0, 0, 0)
    assert edit["range"]["start"]["line"] == 1
    it.replace(0, 1, 11, 16, "size")
    assert await it.next(0, 0, 0) == []


_KEYS = st.lists(
    st.tuples(st.integers(0, 80), st.integers(0, 3), st.sampled_from(["", "x", "é", "😀", "\r\n", "\n", "width", ")"])),
    min_size=1,
    max_size=4,
)


@settings(max_examples=25, deadline=None)
@given(before=_KEYS, after=_KEYS, windows=st.booleans(), asked=st.integers(0, 3))
def test_no_answer_is_ever_an_edit_of_another_version(before, after, windows, asked):
    async def session():
        client = Client()
        client.initialize(options={"nextEdit": {"eagerness": "high"}})
        typist = Typist(client, AREA.replace("\n", "\r\n") if windows else AREA)
        typist.replace(0, 9, 14, "size")
        asked_at, texts, answered_at = {}, {}, {}
        write = client.write

        def noting(data):
            write(data)
            answered_at.setdefault(client.messages[-1].get("id"), typist.version)

        client.write = noting

        def ask():
            asked_at[typist.ask(0, 0)] = typist.version
            texts[typist.version] = typist.text

        for keys in (before, after):
            for at, removed, text in keys:
                lines = split_lines(typist.text)
                line = at % len(lines)
                body = lines[line].rstrip("\r\n")
                start = min(at, len(body))
                end = min(start + removed, len(body))
                typist.replace(line, *(len(body[:one].encode("utf-16-le")) // 2 for one in (start, end)), text)
                if asked != 1:
                    ask()
            if asked == 2:
                await asyncio.sleep(0.03)
        ask()
        for id, version in asked_at.items():
            edit = await typist.answer(id)
            if edit is None:
                continue
            assert answered_at[id] == version == edit["textDocument"]["version"]
            start, end = (
                Position(edit["range"][one]["line"], edit["range"][one]["character"]) for one in ("start", "end")
            )
            lines = Lines(texts[version])
            assert lines.part(lines.offset_at(start), lines.offset_at(end)) == edit["data"]["replaces"]
        client.server.next_edits.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pace, "SETTLED_S", 0.02)
        patch.setattr(pace, "LINE_S", dict.fromkeys(pace.Eagerness, 0.02))
        asyncio.run(session())
