import asyncio
import gc
import json
import logging

import pytest
from foretype_client.flow.suggestion import SelectedCompletion
from foretype_client.policy.trigger import Trigger
from foretype_context.syntax.document import Edit
from foretype_lsp.suggestions.items import ACCEPT_COMMAND

URI = "file:///w/a.py"


async def test_the_capability_is_advertised_with_incremental_sync_and_the_command(fresh):
    result = fresh.initialize()
    capabilities = result["capabilities"]
    assert capabilities["inlineCompletionProvider"] == {}
    assert capabilities["textDocumentSync"]["change"] == 2
    assert capabilities["textDocumentSync"]["openClose"] is True
    assert ACCEPT_COMMAND in capabilities["executeCommandProvider"]["commands"]
    assert result["serverInfo"]["name"] == "foretype"


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [(None, "utf-16"), (["utf-8", "utf-16"], "utf-8"), (["utf-32"], "utf-32"), (["utf-7"], "utf-16")],
)
async def test_the_position_encoding_is_negotiated(fresh, offered, chosen):
    assert fresh.initialize(encodings=offered)["capabilities"]["positionEncoding"] == chosen


async def test_an_unreadable_capability_locks_nobody_out(fresh):
    id = fresh.request(
        "initialize", processId="x", capabilities={"general": {"positionEncodings": ["utf-8"]}, "workspace": 3}
    )
    assert fresh.answers(id)[0]["result"]["capabilities"]["positionEncoding"] == "utf-8"


async def test_a_suggestion_is_answered_with_range_text_and_command(client):
    client.open("def f():\n    return fib(\n")
    id = await client.suggested(1, 15, answer="n - 1)")
    assert client.answers(id) == [
        {
            "jsonrpc": "2.0",
            "id": id,
            "result": {
                "items": [
                    {
                        "insertText": "return fib(n - 1)",
                        "range": {"start": {"line": 1, "character": 4}, "end": {"line": 1, "character": 15}},
                        "command": {"title": "Accepted", "command": ACCEPT_COMMAND, "arguments": ["s0"]},
                    }
                ]
            },
        }
    ]


@pytest.mark.parametrize(("encoding", "character"), [("utf-8", 12), ("utf-16", 8), ("utf-32", 7)])
async def test_an_emoji_and_a_cjk_character_are_counted_the_clients_way(fresh, encoding, character):
    fresh.initialize(encodings=[encoding])
    fresh.open('s = "😀语"\n')
    fresh.insert(0, character, "!")
    assert fresh.text() == 's = "😀语!"\n'
    id = await fresh.asking(0, character + 1)
    assert fresh.flow.asked[0][1] == 8
    await fresh.answering(0, "x")
    assert fresh.answers(id)[0]["result"]["items"][0]["range"]["end"]["character"] == character + 1


async def test_nothing_to_show_is_an_empty_list_which_takes_an_old_suggestion_off_the_screen(client):
    client.open("x")
    id = await client.suggested(0, 1, answer=None)
    assert client.answers(id) == [{"jsonrpc": "2.0", "id": id, "result": {"items": []}}]


async def test_fifty_requests_in_a_row_get_one_answer_each_and_only_the_last_reaches_the_flow(client, settled):
    client.open("x" * 60)
    ids = [client.ask(0, i) for i in range(50)]
    await settled()
    assert len(client.flow.asked) == 1
    await client.answering(0, "y")
    answers = [client.answers(id) for id in ids]
    assert [len(answer) for answer in answers] == [1] * 50
    assert [answer[0]["result"] for answer in answers[:-1]] == [None] * 49
    assert answers[-1][0]["result"]["items"]


async def test_an_older_request_is_answered_null_as_soon_as_the_next_is_there(client):
    client.open("xy")
    first = await client.asking(0, 1)
    second = await client.asking(0, 2)
    assert client.answers(first)[0]["result"] is None
    assert client.answers(second) == []
    client.flow.answer(0, "late")
    await client.answering(1, "now")
    assert len(client.answers(first)) == 1
    assert client.answers(second)[0]["result"]["items"][0]["insertText"] == "xynow"


async def test_a_request_in_another_document_supersedes_nothing(client, settled):
    client.open("x")
    client.open("y", uri="file:///w/b.py")
    first, second = client.ask(0, 1), client.ask(0, 1, uri="file:///w/b.py")
    await settled()
    client.flow.answer(0, "1")
    await client.answering(1, "2")
    assert client.answers(first)[0]["result"]["items"]
    assert client.answers(second)[0]["result"]["items"]


async def test_cancelling_reaches_the_flow_and_is_answered_once_with_its_code(client, settled):
    client.open("x")
    id = await client.asking(0, 1)
    client.notify("$/cancelRequest", id=id)
    await settled()
    assert [answer["error"]["code"] for answer in client.answers(id)] == [-32800]
    assert client.flow.cancelled == 1


async def test_cancelling_before_the_request_has_begun_is_answered_too(client, settled):
    client.open("x")
    id = client.ask(0, 1)
    client.notify("$/cancelRequest", id=id)
    client.notify("$/cancelRequest", id=id)
    await settled()
    assert [answer["error"]["code"] for answer in client.answers(id)] == [-32800]
    assert client.flow.asked == []


async def test_cancelling_what_is_answered_or_unknown_changes_nothing(client, settled):
    client.open("x")
    id = await client.suggested(0, 1, answer="y")
    client.notify("$/cancelRequest", id=id)
    client.notify("$/cancelRequest", id="never")
    client.notify("$/cancelRequest")
    await settled()
    assert len(client.answers(id)) == 1


async def test_changes_are_handled_while_a_request_waits_and_make_its_answer_void(client):
    client.open("x = ")
    id = await client.asking(0, 4)
    for i in range(20):
        client.insert(0, 4 + i, "y", version=2 + i)
    assert client.text() == "x = " + "y" * 20
    assert client.answers(id) == []
    await client.answering(0, "1")
    assert client.answers(id)[0]["result"] is None


async def test_the_document_is_seen_as_it_was_when_the_request_came(client):
    client.open("x = ")
    await client.asking(0, 4)
    client.insert(0, 4, "zzz")
    snapshot, offset = client.flow.asked[0][:2]
    assert (snapshot.text, offset, snapshot.version) == ("x = ", 4, 1)


async def test_a_change_right_behind_the_request_keeps_the_flow_from_being_asked_about_the_past(client, settled):
    client.open("x = ")
    id = client.ask(0, 4)
    client.insert(0, 4, "1")
    await settled()
    assert client.flow.asked == []
    assert client.answers(id)[0]["result"] is None


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"position": {"line": 0, "character": 0}, "context": {"triggerKind": 2}}, "textDocument"),
        ({"textDocument": {"uri": URI}, "position": {"line": 0, "character": 0}}, "context"),
        (
            {"textDocument": {"uri": URI}, "position": {"line": -1, "character": 0}, "context": {"triggerKind": 2}},
            "line",
        ),
        (
            {"textDocument": {"uri": URI}, "position": {"line": "5", "character": 0}, "context": {"triggerKind": 2}},
            "line",
        ),
        (
            {"textDocument": {"uri": URI}, "position": {"line": 0, "character": 0}, "context": {"triggerKind": 0}},
            "triggerKind",
        ),
        ({"textDocument": {"uri": 7}, "position": {"line": 0, "character": 0}, "context": {"triggerKind": 1}}, "uri"),
        ([1, 2], "params"),
        (None, "params"),
    ],
)
async def test_bad_parameters_are_answered_and_name_the_field(client, params, field):
    client.open("x")
    client.send({"id": "bad", "method": "textDocument/inlineCompletion", "params": params})
    (answer,) = client.answers("bad")
    assert answer["error"]["code"] == -32602
    assert field in answer["error"]["message"]


async def test_bad_parameters_of_pygls_own_methods_are_answered_too(client):
    id = client.request("workspace/executeCommand", command=5, arguments=3)
    assert client.answers(id)[0]["error"]["code"] == -32602
    id = client.request("workspace/executeCommand", command="no.such.command")
    assert client.answers(id)[0]["error"]["code"] == -32602


async def test_an_unknown_method_is_answered_and_an_unknown_notification_is_not(client):
    before = len(client.messages)
    id = client.request("textDocument/nonsense")
    assert client.answers(id)[0]["error"]["code"] == -32601
    client.notify("textDocument/didFocus", textDocument={"uri": URI})
    client.notify("$/nonsense")
    assert len(client.messages) == before + 1


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b"", b"[" * 100_000])
async def test_what_is_not_json_is_a_parse_error(fresh, body):
    fresh.server.protocol.receive(body)
    assert fresh.messages[-1]["error"]["code"] == -32700
    assert fresh.messages[-1]["id"] is None


@pytest.mark.parametrize(
    "message", [[], 5, {"id": 1.5, "method": "shutdown"}, {"id": 1, "method": 5}, {"id": True, "method": "x"}]
)
async def test_what_is_no_request_is_an_invalid_request(fresh, message):
    fresh.server.protocol.receive(json.dumps(message).encode())
    assert fresh.messages[-1]["error"]["code"] == -32600


async def test_before_initialize_requests_are_refused(fresh):
    assert fresh.answers(fresh.ask(0, 0))[0]["error"]["code"] == -32002
    fresh.open("x")
    assert len(fresh.server.documents) == 0


async def test_after_shutdown_requests_are_refused_and_waiting_ones_answered(client):
    client.open("x")
    waiting = await client.asking(0, 1)
    shutdown = client.request("shutdown")
    late = await client.asking(0, 1)
    assert client.answers(shutdown)[0]["result"] is None
    assert client.answers(waiting)[0]["error"]["code"] == -32800
    assert client.answers(late)[0]["error"]["code"] == -32600
    client.send({"method": "exit"})
    assert client.server.stopped.is_set()
    assert client.server.exit_code == 0


async def test_exit_without_shutdown_has_exit_code_one(client):
    client.send({"method": "exit"})
    assert client.server.exit_code == 1


async def test_a_fault_is_answered_null_and_no_source_gets_into_the_log(client, settled, caplog):
    client.open("secret_name = 1")
    id = await client.asking(0, 3)
    client.flow.asked[0][4].set_exception(RuntimeError("secret_name = 1"))
    await settled()
    assert client.answers(id) == [{"jsonrpc": "2.0", "id": id, "result": None}]
    assert "RuntimeError" in caplog.text
    assert "secret_name" not in caplog.text


async def test_fields_nobody_knows_stay_available(client, settled):
    client.open("x")
    client.ask(0, 1, formattingOptions={"tabSize": 4}, somethingNew=1)
    seen = {}
    client.server.protocol.fm.features["x/raw"] = lambda params: seen.update(client.server.protocol.raw_params)
    client.notify("x/raw", formattingOptions={"tabSize": 4})
    assert seen == {"formattingOptions": {"tabSize": 4}}
    await settled()


async def test_a_request_for_a_version_that_is_not_here_is_null(client, settled):
    client.open("x", version=3)
    params = {"position": {"line": 0, "character": 1}, "context": {"triggerKind": 2}}
    old = client.request("textDocument/inlineCompletion", textDocument={"uri": URI, "version": 2}, **params)
    await settled()
    assert client.answers(old)[0]["result"] is None
    assert client.flow.asked == []
    now = client.request("textDocument/inlineCompletion", textDocument={"uri": URI, "version": 3}, **params)
    await settled()
    assert client.answers(now) == []
    assert len(client.flow.asked) == 1


async def test_trigger_and_selected_completion_are_passed_on(client):
    client.open("😀 pri")
    selected = {"range": {"start": {"line": 0, "character": 3}, "end": {"line": 0, "character": 6}}, "text": "print"}
    await client.asking(0, 6, kind=1, selectedCompletionInfo=selected)
    assert client.flow.asked[0][2:4] == (Trigger.INVOKED, SelectedCompletion(2, 5, "print"))


async def test_before_there_is_a_flow_requests_are_null_and_it_learns_what_is_open(client):
    client.server.documents.follow(None)
    client.open("x = 1")
    id = client.ask(0, 1)
    assert client.answers(id)[0]["result"] is None
    client.server.documents.follow(client.flow)
    assert client.flow.told == [("opened", "x = 1")]


async def test_what_the_editor_reports_reaches_the_flow(client):
    client.open("x = ")
    await client.suggested(0, 4, answer="😀 + y")
    item = {"command": {"title": "", "command": ACCEPT_COMMAND, "arguments": ["s0"]}, "insertText": "x = 😀 + y"}
    client.notify("textDocument/didShowCompletion", item=item)
    client.notify("textDocument/didPartiallyAcceptCompletion", item=item, acceptedLength=8)
    id = client.request("workspace/executeCommand", command=ACCEPT_COMMAND, arguments=["s0"])
    assert client.answers(id)[0]["result"] is None
    assert client.flow.told[-3:] == [("shown", "s0"), ("partially", "s0", 3), ("accepted", "s0")]


@pytest.mark.parametrize("reported", [True, False])
async def test_what_a_change_puts_in_was_taken_whether_the_editor_says_so_or_not(client, reported, monkeypatch):
    """Helix runs no command of an item: what the flow makes of the text is told to next edits once they know of the change."""
    client.open("x = ")
    await client.suggested(0, 4, answer="y + 1")
    monkeypatch.setattr(client.flow, "document_changed", lambda _: client.server.suggestions.put_in("s0"))
    tracked = client.server.next_edits._tracking._all[URI]
    told = []
    client.server.suggestions.accepted.add(lambda uri: told.append((uri, tracked.waiting[-1].edits)))
    client.insert(0, 4, "y + 1")
    if reported:
        client.request("workspace/executeCommand", command=ACCEPT_COMMAND, arguments=["s0"])
    assert told == [(URI, (Edit(4, 4, "y + 1"),))]
    assert tracked.waiting[-1].accepted
    assert client.server.suggestions.counts["accepted"] == 1
    monkeypatch.undo()
    client.insert(0, 9, "z", version=3)
    assert not tracked.waiting[-1].accepted


async def test_reports_that_make_no_sense_are_ignored_or_refused(client):
    client.notify("textDocument/didShowCompletion", item=5)
    client.notify("textDocument/didPartiallyAcceptCompletion", item={"insertText": "x"}, acceptedLength=3)
    client.notify("textDocument/didPartiallyAcceptCompletion", item={}, acceptedLength=-3)
    assert client.flow.told == []
    id = client.request("workspace/executeCommand", command=ACCEPT_COMMAND, arguments=[{"x": 1}])
    assert client.answers(id)[0]["error"]["code"] == -32602


async def test_a_suggestion_can_be_explained_by_its_id_and_the_last_one_without(client):
    for arguments, result in ((["s1"], "s1"), ([], "last")):
        id = client.request("workspace/executeCommand", command="foretype.explain", arguments=arguments)
        assert client.answers(id)[0]["result"] == {"id": result, "origin": "cache", "plan": None}
    id = client.request("workspace/executeCommand", command="foretype.explain", arguments=["unknown"])
    assert client.answers(id)[0]["result"] is None
    for wrong in ([5], ["a", "b"]):
        id = client.request("workspace/executeCommand", command="foretype.explain", arguments=wrong)
        assert client.answers(id)[0]["error"]["code"] == -32602


async def test_where_the_cursor_rests_is_told_to_the_flow_in_its_own_units(client):
    client.open("😀 = x")
    position = {"line": 0, "character": 2}  # UTF-16: behind the emoji
    client.notify("foretype/cursorRested", textDocument={"uri": URI}, position=position)
    assert client.flow.told[-1] == ("rested", "😀 = x", 1)
    told = len(client.flow.told)
    client.notify("foretype/cursorRested", textDocument={"uri": "file:///unknown.py"}, position=position)
    client.notify("foretype/cursorRested", textDocument={"uri": URI}, position={"line": -1})
    client.notify("foretype/cursorRested")
    assert len(client.flow.told) == told


async def test_the_status_has_state_and_figures(client):
    status = client.answers(client.request("foretype/status"))[0]["result"]
    assert status["state"] == "starting"
    assert status["counts"]["cachedShare"] == 0.75
    assert status["counts"]["lastTtftMs"] == 12.5
    client.server.status.connected("foretype-30m")
    client.server.status.connected("foretype-30m")
    assert [s["state"] for s in client.notifications("foretype/didChangeStatus")] == ["starting", "ready"]


async def test_a_bad_option_is_logged_once_and_is_in_the_status_and_opens_no_popup(fresh):
    fresh.initialize(options={"debounceMs": "x"})
    fresh.notify("workspace/didChangeConfiguration", settings={"foretype": {"debounceMs": "x"}})
    logged = fresh.notifications("window/logMessage")
    assert len(logged) == 1
    assert "debounceMs" in logged[0]["message"]
    assert fresh.notifications("window/showMessage") == []
    status = fresh.answers(fresh.request("foretype/status"))[0]["result"]
    assert "debounceMs" in status["problems"][0]


async def test_languages_and_globs_can_be_switched_off_while_running(fresh):
    fresh.initialize(options={"enable": {"python": False}})
    fresh.open("x")
    assert fresh.answers(fresh.ask(0, 1))[0]["result"] is None
    fresh.notify("workspace/didChangeConfiguration", settings={"foretype": {"excludedGlobs": ["**/secret/**"]}})
    fresh.open("x", uri="file:///w/secret/b.py")
    assert fresh.answers(fresh.ask(0, 1, uri="file:///w/secret/b.py"))[0]["result"] is None
    id = await fresh.asking(0, 1)
    assert fresh.answers(id) == []
    assert len(fresh.flow.asked) == 1


@pytest.mark.parametrize("settings", [{}, {"foretype": None}, {"python": {"analysis": True}}])
async def test_a_configuration_that_says_nothing_of_us_leaves_the_options(fresh, settings):
    fresh.initialize(options={"excludedGlobs": ["**/secret/**"], "gatewayUrl": "wss://team/v1/stream"})
    before = fresh.server.settings.options
    fresh.notify("workspace/didChangeConfiguration", settings=settings)
    assert fresh.server.settings.options == before and fresh.server.settings.problems == []
    fresh.notify("workspace/didChangeConfiguration", settings={"multiLine": False})
    assert not fresh.server.settings.options.multi_line


async def test_files_that_never_leave_the_machine_are_not_even_told_to_the_flow(client):
    for name, text in (("id_rsa", "-----BEGIN PRIVATE KEY-----\n"), (".env", "A=1"), ("a.bin", "\0\1" * 50)):
        uri = f"file:///w/{name}"
        client.open(text, uri=uri, language="plaintext")
        at = {"line": 0, "character": 0}
        client.change({"range": {"start": at, "end": at}, "text": "x"}, uri=uri)
        id = await client.asking(0, 1, uri=uri)
        assert client.answers(id)[0]["result"] is None
    assert client.flow.asked == []
    assert client.flow.told == []


async def test_switching_everything_off_is_a_status(fresh):
    fresh.initialize(options={"enable": False})
    assert fresh.notifications("foretype/didChangeStatus")[-1]["state"] == "off"


async def test_single_line_only_ends_a_suggestion_with_its_first_line(fresh):
    fresh.initialize(options={"multiLine": False})
    fresh.open("def f():")
    id = await fresh.suggested(0, 8, answer=" pass\n\nx = 1")
    assert fresh.answers(id)[0]["result"]["items"][0]["insertText"] == "def f(): pass"


async def test_growth_is_told_only_to_clients_that_understand_it(client):
    client.server.suggestions.grew(URI, "s0")
    assert client.notifications("foretype/suggestionGrew") == []
    client.notify("workspace/didChangeConfiguration", settings={"foretype": {"suggestionGrew": True}})
    client.server.suggestions.grew(URI, "s0")
    assert client.notifications("foretype/suggestionGrew") == [{"textDocument": {"uri": URI}, "id": "s0"}]


async def test_growth_is_told_behind_the_answer_that_grew(fresh):
    """A fresh whose question is on its way took it for no news, and half a line stayed on the screen."""
    fresh.initialize(options={"suggestionGrew": True})
    fresh.open("def f():")
    id = await fresh.asking(0, 8)
    fresh.server.suggestions.grew(URI, "s0")
    assert fresh.notifications("foretype/suggestionGrew") == []
    await fresh.answering(0, " pa")
    (grew,) = fresh.notifications("foretype/suggestionGrew")
    assert fresh.answers(id)[0]["result"]["items"][0]["insertText"] == "def f(): pa"
    told = [message for message in fresh.messages if message.get("id") == id or message.get("params") == grew]
    assert [message.get("method") for message in told] == [None, "foretype/suggestionGrew"]


async def test_a_change_that_cannot_be_read_loses_the_text_until_it_comes_whole(client):
    client.open("x = 1")
    client.change({"range": {"start": {"line": -1, "character": 0}, "end": 7}, "text": "y"})
    assert client.answers(client.ask(0, 1))[0]["result"] is None
    client.insert(0, 0, "z", version=3)
    assert client.text() == "x = 1"
    client.change({"text": "whole"}, version=4)
    id = await client.asking(0, 5)
    assert client.flow.asked[-1][0].text == "whole"
    assert client.answers(id) == []


async def test_numbers_beyond_every_line_mean_the_end(client):
    client.open("ab\ncd")
    end = {"line": 1.7976931348623157e308, "character": 2**70}
    client.change({"range": {"start": {"line": 0, "character": 1e308}, "end": end}, "text": "!"})
    assert client.text() == "ab!"


async def test_folders_that_come_and_go_decide_the_paths_of_documents(fresh):
    fresh.initialize(workspaceFolders=[{"uri": "file:///w", "name": "w"}])
    fresh.open("", uri="file:///w/p/a.py")
    assert fresh.server.documents.get("file:///w/p/a.py").document.path == "p/a.py"
    event = {"added": [{"uri": "file:///v", "name": "v"}], "removed": []}
    fresh.notify("workspace/didChangeWorkspaceFolders", event=event)
    fresh.open("", uri="file:///v/q/b.py")
    assert fresh.server.documents.get("file:///v/q/b.py").document.path == "q/b.py"


async def test_options_of_the_command_line_win_and_their_problems_are_told(fresh):
    fresh = type(fresh)(overrides={"gatewayUrl": "http://no.websocket", "debounceMs": 5.0})
    fresh.initialize(options={"gatewayUrl": "ws://editor/v1/stream", "debounceMs": 50, "multiLine": False})
    assert fresh.server.settings.options.debounce_ms == 5
    assert fresh.server.settings.options.gateway_url == ""
    assert not fresh.server.settings.options.multi_line
    assert "gatewayUrl" in fresh.notifications("window/logMessage")[0]["message"]


async def test_unsure_on_the_command_line_leaves_the_editors_other_policies(fresh):
    fresh = type(fresh)(overrides={"policies": {"unsure": True}})
    fresh.initialize(options={"policies": {"speculative": True, "adaptiveDebounce": False}})
    policies = fresh.server.settings.options.policies
    assert (policies.unsure, policies.speculative, policies.adaptive_debounce) == (True, True, False)


async def test_a_question_that_fails_when_nobody_waits_any_more_is_logged_without_its_words(client, settled, caplog):
    client.open("x")
    for _ in range(2):
        await client.asking(0, 1)
    client.flow.asked[0][4].set_exception(ValueError("the user's text"))
    client.flow.asked.clear()
    await settled()
    gc.collect()
    await settled()
    assert "ValueError at" in caplog.text and "the user's text" not in caplog.text


async def test_what_grew_in_a_document_that_was_closed_is_nothing_to_its_next_opening(fresh):
    fresh.initialize(options={"suggestionGrew": True})
    fresh.open("x")
    fresh.server.suggestions.grew(URI, "s0")
    fresh.notify("textDocument/didClose", textDocument={"uri": URI})
    fresh.open("x")
    await fresh.asking(0, 1, kind=1)
    assert fresh.flow.asked[-1][2] is Trigger.INVOKED


async def test_credentials_in_the_gateways_address_are_told_nobody(fresh, caplog):
    caplog.set_level(logging.DEBUG, "foretype_lsp")  # pygls, which logs whole messages, is silenced in the product
    fresh.initialize(options={"gatewayUrl": "wss://ann:s3cret@host:8443/v1/stream"})
    fresh.server.status.connecting(fresh.server.settings.options.gateway_url)
    told = fresh.notifications("foretype/didChangeStatus")[-1]
    assert told["gateway"] == "wss://host:8443/v1/stream"
    own = [record.getMessage() for record in caplog.records if record.name.startswith("foretype")]
    assert own and "s3cret" not in "".join(own) + json.dumps(fresh.messages)


async def test_options_that_are_no_object_are_a_problem_and_no_end(fresh):
    fresh.initialize(options=[1, 2])
    assert "object" in fresh.notifications("window/logMessage")[0]["message"]


async def test_what_a_key_put_in_is_told_to_the_flow_where_the_editor_asks_later(fresh):
    fresh.initialize(options={"askEarly": True})
    fresh.open("x\r\né")

    def offsets():
        return [offset for what, offset in fresh.flow.told if what == "typed"]

    fresh.insert(0, 1, "a")
    fresh.insert(1, 1, "😀", version=3)
    fresh.insert(1, 3, "()", version=4)  # the editor closes what was opened
    fresh.insert(1, 4, "\n    ", version=5)
    assert offsets() == [2, 5, 6, 11]
    at, end = {"line": 0, "character": 0}, {"line": 0, "character": 1}
    fresh.change({"range": {"start": at, "end": end}, "text": ""}, version=6)
    fresh.change({"text": "whole"}, version=7)
    one = {"range": {"start": at, "end": at}, "text": "z"}
    fresh.change(one, one, version=8)  # two cursors
    fresh.change({"range": {"start": end, "end": at}, "text": "q"}, version=9)  # the ends turned round
    assert offsets() == [2, 5, 6, 11, 1]


async def test_an_editor_that_asks_at_once_needs_no_early_requests(client):
    client.open("x")
    client.insert(0, 1, "a")
    assert [what for what, _ in client.flow.told] == ["opened", "changed"]


async def test_asking_again_for_what_grew_is_no_wish_of_the_users(fresh):
    fresh.initialize(options={"suggestionGrew": True})
    fresh.open("x")
    fresh.server.suggestions.grew(URI, "s0")
    for _ in range(2):
        await fresh.asking(0, 1, kind=1)
    assert [trigger for _, _, trigger, _, _ in fresh.flow.asked] == [Trigger.AUTOMATIC, Trigger.INVOKED]


async def test_an_answer_is_written_before_anything_else_can_be_read(client, settled):
    came = []

    @client.server.feature("test/answers")
    async def _(_):
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(lambda: came.append(len(client.answers(id))))
        return 1

    id = client.request("test/answers")
    await settled()
    assert came == [1] and [answer["result"] for answer in client.answers(id)] == [1]
