"""The next edit as a code action (`foretype lsp --popup`): offered by hand, taken by hand, and nothing applied that is not certain."""

import asyncio

import pytest
from foretype_context.edits import pace
from foretype_lsp.next_edit import actions
from foretype_lsp.next_edit.actions import ACTION_KIND, TAKE_COMMAND
from lsp_server.next_edit_support import AREA, MEDIUM, URI, Typist, answered
from lsp_server.test_next_edits import Log, Notebook
from lsp_server.test_next_edits_elsewhere import indexed

EDITS = {"applyEdit": True, "workspaceEdit": {"documentChanges": True}}
WHOLE = {"workspace": EDITS, "window": {"showDocument": {"support": True}}}
MODULE = "def width(a):\n    return a\n"
USER = "from mod import width\n\nprint(width(1))\n"
CALLED = "def f(a):\n    return a\n\n\nprint(f(1))\nprint(f(2))\n"


@pytest.fixture
async def popup(fresh):
    made = type(fresh)(popup=True)
    yield made
    made.server.next_edits.close()


class ByHand(Typist):
    """Asks for code actions and chooses one; does what the server then asks of an editor."""

    def __init__(self, client, *arguments, answers_first=False, **named):
        super().__init__(client, *arguments, **named)
        self.shown, self.applied, self.answers_first = [], [], answers_first
        self.verdict, self.arrives = {"applied": True}, {"success": True}

    async def actions(self, line=0, character=0, **context):
        at = {"line": line, "character": character}
        id = self.client.request(
            "textDocument/codeAction",
            textDocument={"uri": self.uri},
            range={"start": at, "end": at},
            context={"diagnostics": [], "triggerKind": 1, **context},
        )
        return (await answered(self.client, id))["result"]

    async def next_action(self, line=0, character=0, **context):
        """The action of a next edit, or None."""
        found = await self.actions(line, character, **context)
        assert all(one["kind"] != ACTION_KIND for one in found[1:])
        return found[0] if found and found[0]["kind"] == ACTION_KIND else None

    async def choose(self, action):
        """What the command answers: its result or its error."""
        read = len(self.client.messages)
        id = self.client.request(
            "workspace/executeCommand", **{k: action["command"][k] for k in ("command", "arguments")}
        )
        async with asyncio.timeout(60):
            while not self.client.answers(id):
                if len(self.client.messages) == read:
                    self.client.arrived.clear()
                    await self.client.arrived.wait()
                for message in self.client.messages[read:]:
                    read += 1
                    if "method" in message and "id" in message:
                        self._do(message)
        (answer,) = self.client.answers(id)
        return answer.get("result", answer.get("error"))

    def _do(self, message):
        params = message["params"]
        if message["method"] == "window/showDocument":
            self.shown.append(params)
            self.client.send({"id": message["id"], "result": self.arrives})
            return
        assert message["method"] == "workspace/applyEdit"
        (change,) = params["edit"]["documentChanges"]
        ((edit,), document) = change["edits"], change["textDocument"]
        assert document == {"uri": self.uri, "version": self.version}
        self.applied.append(edit)
        start, end = edit["range"]["start"], edit["range"]["end"]
        assert start["line"] == end["line"]
        answer = {"id": message["id"], "result": self.verdict}
        if self.answers_first:
            self.client.send(answer)
        if self.verdict["applied"]:
            self.replace(start["line"], start["character"], end["character"], edit["newText"])
        if not self.answers_first:
            self.client.send(answer)

    def warned(self):
        return [one["message"] for one in self.client.notifications("window/showMessage")]


@pytest.fixture
async def typist(popup):
    popup.initialize(options=MEDIUM, capabilities=WHOLE)
    return ByHand(popup)


async def test_it_is_advertised_only_with_popup(fresh, popup):
    for one, there in ((popup, True), (fresh, False)):
        capabilities = one.initialize()["capabilities"]
        assert (TAKE_COMMAND in capabilities["executeCommandProvider"]["commands"]) is there
        assert (ACTION_KIND in capabilities["codeActionProvider"]["codeActionKinds"]) is there


async def test_it_stands_before_the_other_actions_and_only_with_popup(fresh, typist):
    typist.retype(0, 9, "width", "size")
    offered = await typist.actions(0, 13)
    action = offered[0]
    assert action == {
        "title": "Next edit: line 2, `width` → `size`",
        "kind": ACTION_KIND,
        "command": {
            "title": action["title"],
            "command": TAKE_COMMAND,
            "arguments": action["command"]["arguments"],
        },
    }
    fresh.initialize(options=MEDIUM, capabilities=WHOLE)
    other = ByHand(fresh)
    other.retype(0, 9, "width", "size")
    assert await other.actions(0, 13) == offered[1:]
    assert [one["title"] for one in offered[1:]] == [
        "Foretype: explain", "Foretype: document", "Foretype: complete this function",
    ]  # fmt: skip


@pytest.mark.parametrize("answers_first", [False, True])
async def test_the_chain_is_taken_place_by_place_and_each_counts_once(popup, answers_first):
    popup.initialize(options=MEDIUM, capabilities=WHOLE)
    typist, log = ByHand(popup, answers_first=answers_first), Log(popup)
    typist.retype(0, 9, "width", "size")
    ids = []
    for line, at in ((1, 7), (3, 11)):
        action = await typist.next_action(0, 13)
        assert await typist.choose(action) | {"edit": None} == {"applied": True, "edit": None}
        place = {"line": line, "character": at}
        assert typist.shown[-1] == {"uri": URI, "takeFocus": True, "selection": {"start": place, "end": place}}
        ids += action["command"]["arguments"]
    assert typist.text == AREA.replace("width", "size")
    assert await typist.next_action(3, 11) is None
    told = [(one.id, one.chain, one.order, one.end, one.taken.new) for one in log.outcomes]
    assert told == [(ids[0], ids[0], 1, "accepted", "size"), (ids[1], ids[0], 2, "accepted", "size")]
    assert typist.warned() == []


async def test_unless_told_otherwise_it_is_silent_until_one_reference_was_changed_by_hand(popup):
    popup.initialize(capabilities=WHOLE)
    typist = ByHand(popup)
    typist.retype(0, 9, "width", "size")
    assert await typist.next_action(1, 7) is None
    typist.retype(1, 7, "width", "size")
    action = await typist.next_action(1, 11)
    assert action["title"] == "Next edit: line 4, `width` → `size`"
    await typist.choose(action)
    assert typist.text == AREA.replace("width", "size")


async def test_it_waits_for_the_name_to_be_whole_and_not_for_the_line(typist, monkeypatch):
    monkeypatch.setattr(pace, "LINE_S", dict.fromkeys(pace.Eagerness, 1e6))
    monkeypatch.setattr(pace, "_WAIT_MOST_S", 1e6)
    typist.retype(0, 9, "width", "size")
    assert await typist.next_action(0, 13) is not None


async def test_a_suggestion_that_was_in_the_menu_is_not_in_the_way(typist, settled):
    typist.retype(0, 9, "width", "size")
    where = {"line": 0, "character": 13}
    typist.client.request("textDocument/completion", textDocument={"uri": URI}, position=where)
    await settled()
    await typist.client.answering(0, "_of_it")
    assert await typist.next_action(0, 13) is not None


async def test_what_was_listed_and_not_taken_is_told_and_leaves_the_menu_alone(typist, settled):
    log = Log(typist.client)
    typist.retype(0, 9, "width", "size")
    assert await typist.next_action(0, 13) is not None
    where = {"line": 0, "character": 13}
    id = typist.client.request("textDocument/completion", textDocument={"uri": URI}, position=where)
    await settled()
    await typist.client.answering(0, "_of_it")
    assert len(typist.client.answers(id)[0]["result"]["items"]) == 1
    typist.replace(0, 13, 13, "s")
    assert [one.end for one in log.outcomes] == ["typed"]


async def test_what_takes_too_long_is_left_out(typist, monkeypatch):
    monkeypatch.setattr(pace, "SETTLED_S", 1e6)
    monkeypatch.setattr(actions, "_MOST_S", 0.01)
    typist.retype(0, 9, "width", "size")
    assert len(await typist.actions(0, 13)) == 3


async def test_a_fault_costs_the_next_edit_alone(typist, monkeypatch, caplog):
    async def broken(*_):
        raise RuntimeError("secret")

    monkeypatch.setattr(typist.client.server.next_edits._tracking, "next", broken)
    typist.retype(0, 9, "width", "size")
    assert len(await typist.actions(0, 13)) == 3
    assert "RuntimeError" in caplog.text and "secret" not in caplog.text


async def test_a_change_answers_with_the_other_actions_at_once(typist, monkeypatch):
    monkeypatch.setattr(pace, "SETTLED_S", 1e6)
    monkeypatch.setattr(actions, "_MOST_S", 1e6)
    typist.retype(0, 9, "width", "size")
    asked = asyncio.create_task(typist.actions(0, 13))
    await asyncio.sleep(0)
    typist.replace(3, 24, 24, " ")
    assert len(await asked) == 3


async def test_cancelling_is_answered_with_its_code(typist):
    typist.retype(0, 9, "width", "size")
    at = {"line": 0, "character": 13}
    id = typist.client.request(
        "textDocument/codeAction",
        textDocument={"uri": URI},
        range={"start": at, "end": at},
        context={"diagnostics": []},
    )
    typist.client.notify("$/cancelRequest", id=id)
    assert (await answered(typist.client, id))["error"]["code"] == -32800


async def test_who_asks_for_other_kinds_or_by_itself_gets_none(typist):
    typist.retype(0, 9, "width", "size")
    assert await typist.actions(0, 13, triggerKind=2) == []
    assert len(await typist.actions(0, 13, only=["refactor"])) == 3
    assert [one["kind"] for one in await typist.actions(0, 13, only=["quickfix"])] == [ACTION_KIND]


@pytest.mark.parametrize("options", [{"nextEdit": {"enabled": False}}, {"nextEdit": False}, {"enable": False}])
async def test_off_means_off(popup, options):
    popup.initialize(options=options, capabilities=WHOLE)
    typist = ByHand(popup)
    typist.retype(0, 9, "width", "size")
    typist.retype(1, 7, "width", "size")
    assert await typist.next_action(1, 11) is None


async def test_where_only_the_place_is_known_the_cursor_goes_there_and_that_counts(popup):
    popup.initialize(capabilities=WHOLE)
    typist, log = ByHand(popup, CALLED), Log(popup)
    typist.replace(0, 7, 7, ", b")
    cursor = (3, 0)
    for line in (4, 5):
        action = await typist.next_action(*cursor)
        assert action["title"] == f"Next edit: look at line {line + 1}"
        assert await typist.choose(action) == {"applied": False}
        at = typist.shown[-1]["selection"]["start"]
        assert at == {"line": line, "character": 9}
        cursor = (line, 9)
    assert await typist.next_action(*cursor) is None
    assert typist.applied == []
    assert [(one.end, one.jumped, one.taken) for one in log.outcomes] == [("accepted", True, None)] * 2


async def test_another_file_is_opened_and_offers_the_edit_itself(popup, tmp_path):
    (tmp_path / "mod.py").write_text(MODULE)
    (tmp_path / "use.py").write_text(USER)
    popup.initialize(options=MEDIUM, capabilities=WHOLE, rootUri=tmp_path.as_uri())
    typist, log = ByHand(popup, MODULE, (tmp_path / "mod.py").as_uri()), Log(popup)
    typist.replace(0, 4, 9, "size")
    with indexed(popup, tmp_path):
        action = await typist.next_action(0, 8)
        assert action["title"] == "Next edit: use.py, line 1"
        assert await typist.choose(action) == {"applied": False}
        (shown,) = typist.shown
        assert (shown["uri"], shown["takeFocus"]) == ((tmp_path / "use.py").as_uri(), True)
        assert shown["selection"]["start"] == {"line": 0, "character": 16}
        assert log.outcomes == []
        other = ByHand(popup, USER, (tmp_path / "use.py").as_uri())
        for title in ("Next edit: line 1, `width` → `size`", "Next edit: line 3, `width` → `size`"):
            action = await other.next_action(0, 16)
            assert action["title"] == title
            assert (await other.choose(action))["applied"]
        assert other.text == USER.replace("width", "size")
        assert await other.next_action(2, 6) is None
    told = [(one.end, one.order, one.elsewhere, one.jumped) for one in log.outcomes]
    assert told == [("accepted", 1, True, True), ("accepted", 2, False, False)]
    assert typist.applied == []


async def test_an_open_file_is_gone_to_as_well_and_not_changed_from_afar(popup, tmp_path):
    popup.initialize(options=MEDIUM, capabilities=WHOLE, rootUri=tmp_path.as_uri())
    other = ByHand(popup, USER, (tmp_path / "use.py").as_uri())
    typist = ByHand(popup, MODULE, (tmp_path / "mod.py").as_uri())
    typist.replace(0, 4, 9, "size")
    action = await typist.next_action(0, 8)
    assert action["title"] == "Next edit: use.py, line 1"
    await typist.choose(action)
    assert other.text == USER and typist.applied == []
    assert typist.shown[0]["uri"] == other.uri


async def test_another_cell_is_gone_to_like_another_file(popup):
    popup.initialize(options=MEDIUM, capabilities=WHOLE)
    it = Notebook(popup, "width = 1\n", "print(width)\n")
    it.replace(0, 0, 0, 5, "size")
    typist = ByHand.__new__(ByHand)
    typist.client, typist.uri, typist.version = popup, it.cell(0), it.versions[0]
    typist.shown, typist.applied, typist.arrives = [], [], {"success": True}
    action = await typist.next_action(0, 0)
    assert action["title"] == "Next edit: a.ipynb, line 1"
    await typist.choose(action)
    assert typist.shown[0]["uri"] == it.cell(1)
    assert typist.shown[0]["selection"]["start"] == {"line": 0, "character": 6}
    typist.uri, typist.version = it.cell(1), it.versions[1]
    assert (await typist.next_action(0, 6))["title"] == "Next edit: line 1, `width` → `size`"


@pytest.mark.parametrize("program", ["helix", "another"])
async def test_an_edit_of_a_text_that_changed_is_not_applied_and_says_so(popup, program):
    popup.initialize(options=MEDIUM, capabilities=WHOLE, clientInfo={"name": program})
    typist = ByHand(popup)
    typist.retype(0, 9, "width", "size")
    action = await typist.next_action(0, 13)
    typist.replace(3, 24, 24, " ")
    error = await typist.choose(action)
    assert error["code"] == -32801 and "changed meanwhile; nothing was applied, ask again" in error["message"]
    # Helix only logs it; an editor that shows the error would say it twice.
    assert typist.warned() == ([f"Foretype: {error['message']}"] if program == "helix" else [])
    assert (typist.applied, typist.shown) == ([], [])
    typist.replace(3, 24, 25, "")
    assert await typist.next_action(0, 13) is not None


async def test_what_was_chosen_before_and_what_nobody_knows_is_void(typist):
    typist.retype(0, 9, "width", "size")
    action = await typist.next_action(0, 13)
    await typist.choose(action)
    for arguments in (action["command"]["arguments"], ["n99"]):
        error = await typist.choose({"command": {"command": TAKE_COMMAND, "arguments": arguments}})
        assert error["code"] == -32801
    assert len(typist.applied) == 1


@pytest.mark.parametrize("arguments", [[], [3], ["n1", "n2"], None])
async def test_the_command_takes_an_id(typist, arguments):
    error = await typist.choose({"command": {"command": TAKE_COMMAND, "arguments": arguments}})
    assert error["code"] == -32602 and TAKE_COMMAND in error["message"]


async def test_nothing_is_applied_to_a_file_that_was_closed(typist):
    typist.retype(0, 9, "width", "size")
    action = await typist.next_action(0, 13)
    text = typist.text
    typist.client.notify("textDocument/didClose", textDocument={"uri": URI})
    assert (await typist.choose(action))["code"] == -32801
    typist.client.open(text, version=typist.version)
    assert (await typist.choose(action))["code"] == -32801
    assert typist.applied == []


async def test_an_editor_that_refuses_the_edit_is_believed(typist):
    log = Log(typist.client)
    typist.retype(0, 9, "width", "size")
    typist.verdict = {"applied": False, "failureReason": "the buffer is newer"}
    error = await typist.choose(await typist.next_action(0, 13))
    assert error["code"] == -32801 and "the buffer is newer" in error["message"]
    assert (typist.shown, log.outcomes) == ([], [])
    typist.verdict = {"applied": True}
    assert (await typist.choose(await typist.next_action(0, 13)))["applied"]


@pytest.mark.parametrize("workspace", [{}, {"applyEdit": True}, {"workspaceEdit": {"documentChanges": True}}])
async def test_an_editor_without_versioned_edits_is_told_and_nothing_is_applied(popup, workspace):
    popup.initialize(options=MEDIUM, capabilities=WHOLE | {"workspace": workspace})
    typist = ByHand(popup)
    typist.retype(0, 9, "width", "size")
    result = await typist.choose(await typist.next_action(0, 13))
    assert result["applied"] is False and "version" in result["reason"]
    assert typist.warned() == [f"Foretype: nothing was changed: {result['reason']}"]
    assert (typist.applied, typist.shown) == ([], [])


async def test_an_editor_that_cannot_be_brought_anywhere_gets_the_edit_and_is_told_of_other_places(popup):
    popup.initialize(options=MEDIUM, capabilities={"workspace": EDITS})
    typist = ByHand(popup)
    typist.retype(0, 9, "width", "size")
    assert (await typist.choose(await typist.next_action(0, 13)))["applied"]
    called = ByHand(popup, CALLED, uri="file:///w/b.py")
    called.replace(0, 7, 7, ", b")
    error = await called.choose(await called.next_action(3, 0))
    assert error["code"] == -32803 and error["message"].endswith("b.py, line 5")
    assert typist.shown == called.shown == []


async def test_that_the_cursor_stayed_away_undoes_nothing(typist):
    typist.retype(0, 9, "width", "size")
    typist.arrives = {"success": False}
    assert (await typist.choose(await typist.next_action(0, 13)))["applied"]
    assert (await typist.choose(await typist.next_action(0, 13)))["applied"]
    assert typist.text == AREA.replace("width", "size")


@pytest.mark.parametrize(("encoding", "character"), [("utf-8", 19), ("utf-16", 15), ("utf-32", 14)])
async def test_positions_are_counted_the_clients_way(popup, encoding, character):
    popup.initialize(encodings=[encoding], options=MEDIUM, capabilities=WHOLE)
    typist = ByHand(popup, 'def f(width):\n    x = "😀语", width\n')
    typist.retype(0, 6, "width", "size")
    await typist.choose(await typist.next_action(0, 10))
    assert typist.text == 'def f(size):\n    x = "😀语", size\n'
    assert typist.shown[0]["selection"]["start"] == {"line": 1, "character": character}


async def test_long_texts_are_cut(popup):
    popup.initialize(options=MEDIUM, capabilities=WHOLE)
    old, new = "a" * 30, "b" * 30
    typist = ByHand(popup, AREA.replace("width", old))
    typist.replace(0, 9, 39, new)
    title = (await typist.next_action(0, 13))["title"]
    assert title == f"Next edit: line 2, `{'a' * 23}…` → `{'b' * 23}…`"


async def test_a_rename_that_more_was_typed_after_than_is_kept_unread_is_known(popup):
    popup.initialize(options=MEDIUM, capabilities=WHOLE)
    typist = ByHand(popup)
    typist.retype(0, 9, "width", "size")
    typist.replace(3, 24, 24, "  # ")
    for _ in range(300):
        typist.replace(3, 28, 28, "x")
    assert await typist.next_action(0, 13) is not None
