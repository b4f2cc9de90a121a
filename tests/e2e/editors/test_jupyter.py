"""JupyterLab and Notebook 7 in a real browser, behind a base URL and a token: ghost text in cells, and a server that knows them."""

import contextlib
import itertools
import json
import os
import time
import urllib.request
from contextlib import closing
from http.cookiejar import CookieJar

import psutil
import pytest
from e2e.editors.jupyter_support import BASE, MISSING, NAMES, TOKEN, Jupyter, Lab, Page, Stubbed, notebook
from e2e.lsp_support import gateway
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

pytestmark = [pytest.mark.skipif(MISSING is not None, reason=str(MISSING)), pytest.mark.timeout(300)]

SLOW_S = 0.12


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with gateway(tmp_path_factory.mktemp("gateway"), decode_s=0.002) as running:
        yield running


@pytest.fixture(scope="module")
def lab(served, tmp_path_factory):
    with closing(Lab(tmp_path_factory.mktemp("lab"), served.url)) as it:
        yield it


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """The same with an engine that takes its time."""
    folder = tmp_path_factory.mktemp("slow")
    with gateway(folder, decode_s=SLOW_S) as running, closing(Lab(folder, running.url)) as it:
        yield it


@pytest.fixture(scope="module")
def stub(tmp_path_factory):
    with closing(Stubbed(tmp_path_factory.mktemp("stub"))) as it:
        yield it


@pytest.fixture
def page(lab):
    yield lab.page
    assert lab.page.complaints() == []
    assert lab.tapped.errors() == []
    assert "ERROR" not in lab.log.read_text()


@pytest.mark.parametrize("app", ["lab/tree", "notebooks"])
def test_ghost_text_comes_and_tab_takes_it_and_the_server_hears_of_both(lab, page, app):
    name = lab.open("import os", ("markdown", "# Values"), "x = 1", app=app)
    before = lab.accepted()
    page.type("\nvalue = ", delay_ms=30)
    page.until_ghost("value =  # scripted")
    page.press("Tab")
    page.until(lambda: page.active() == "x = 1\nvalue = value =  # scripted", "accepted")
    page.until(lambda: len(lab.accepted()) == len(before) + 1, "the server is told")
    shown = [
        message["params"]["item"]["command"]["arguments"]
        for message in lab.said("editor", "textDocument/didShowCompletion")
    ]
    assert lab.accepted()[-1] in shown
    lab.agrees(name)


def test_alt_right_takes_a_word_and_the_rest_stays(lab, page):
    lab.open("value = ")
    page.type("1", delay_ms=30)
    page.until_ghost("value = 1  # scripted")
    page.press("Alt+ArrowRight")
    page.until(lambda: page.active() == "value = 1value", "a word")
    page.until(lambda: page.ghost() != "", "the rest")
    page.until(lambda: lab.said("editor", "textDocument/didPartiallyAcceptCompletion") != [], "the server is told")
    told = lab.said("editor", "textDocument/didPartiallyAcceptCompletion")
    assert told[-1]["params"]["acceptedLength"] == len("value = 1value")
    page.press("Alt+ArrowRight")
    page.until(
        lambda: page.active().startswith("value = 1value") and len(page.active()) > len("value = 1value"), "the next"
    )
    assert page.do("active")["offset"] == len(page.active())


def test_cells_that_are_typed_split_undone_moved_run_added_and_deleted_are_the_servers(lab, page):
    name = lab.open("a = 1", ("markdown", "text"), "b = 2\nc = 3")
    page.type("\nd = 4", delay_ms=10)
    lab.agrees(name)
    page.press("ArrowUp", "Home")
    page.execute("notebook:split-cell-at-cursor")
    lab.agrees(name)
    assert len(page.cells()) == 4
    page.execute("notebook:undo-cell-action")
    lab.agrees(name)
    page.press("Control+z")
    lab.agrees(name)
    page.press("Escape")
    page.execute("notebook:move-cell-up")
    lab.agrees(name)
    page.execute("notebook:run-cell-and-insert-below")
    lab.agrees(name)
    page.execute("notebook:insert-cell-above")
    page.execute("notebook:change-cell-to-markdown")
    lab.agrees(name)
    page.execute("notebook:copy-cell")
    page.execute("notebook:paste-cell-below")
    lab.agrees(name)
    page.execute("notebook:delete-cell")
    page.execute("notebook:delete-cell")
    lab.agrees(name)
    page.execute("notebook:enter-edit-mode")
    page.execute("notebook:select-all")
    page.execute("notebook:merge-cells")
    lab.agrees(name)


def test_a_cell_that_running_makes_is_asked_about(lab, page):
    name = lab.open("seconds = 1")
    page.press("Shift+Enter")
    page.until(lambda: len(page.cells()) == 2, "a new cell")
    page.type("value = ", delay_ms=30)
    page.until_ghost("value =  # scripted")
    lab.agrees(name)


@pytest.mark.parametrize(
    ("cell", "typed"),
    [(("markdown", "some"), " words"), ("%%bash", "\nvalue = "), ("x = 1\n", "!pip value = "), ("", "%time value = ")],
)
def test_what_is_no_python_gets_none(lab, page, cell, typed):
    lab.open("value = 1", cell, focus=1) if isinstance(cell, str) else lab.open("value = 1", cell, focus=0)
    if not isinstance(cell, str):
        page.press("Escape", "ArrowDown", "Enter")
    page.type(typed, delay_ms=20)
    asked = len(lab.tapped.asked())
    page.until(lambda: lab.tapped.unanswered() == [], "answered")
    time.sleep(0.3)
    assert page.ghost() == "" and len(lab.tapped.asked()) >= asked


def test_an_indented_empty_line_is_asked_about_and_not_as_if_the_user_had(lab, page):
    lab.open("def f(a):")
    page.press("Enter")
    page.until(lambda: page.ghost() != "", "ghost text on a line of blanks")
    asked = lab.said("editor", "textDocument/inlineCompletion")[-1]["params"]
    assert asked["context"] == {"triggerKind": 2} and asked["position"] == {"line": 1, "character": 4}


def test_a_key_that_fits_nothing_takes_the_ghost_away_and_tab_is_tab_again(lab, page):
    lab.open("value = ")
    page.type("1", delay_ms=30)
    page.until_ghost("value = 1  # scripted")
    page.press("Escape", "Enter")
    page.until(lambda: page.ghost() == "", "gone")
    page.press("Home")
    marked = "document.querySelectorAll('.jp-mod-inline-completer-active').length"
    page.until(lambda: page.do("evaluate", expression=marked) == 0, "no editor says that it shows something")
    page.press("Tab")
    page.until(lambda: page.active() == "    value = 1", "indented")


def test_a_ghost_before_a_bracket_takes_nothing_away_when_the_cursor_has_moved(stub):
    page = stub.page
    stub.answer("tail", 0)
    stub.open("mid()")
    page.press("ArrowLeft")
    page.type("a", delay_ms=30)
    page.until_ghost("tail")
    page.press("ArrowRight", "Tab")
    assert page.active() == "mid(a)"
    page.press("ArrowLeft")
    page.type("b", delay_ms=30)
    page.until_ghost("tail")
    page.press("Tab")
    page.until(lambda: page.active() == "mid(abtail)", "accepted in the middle")


@pytest.mark.parametrize("key", ["Tab", "Alt+ArrowRight"])
def test_one_undo_leaves_what_was_typed_before_the_accept(stub, key):
    """JupyterLab makes one step of what is typed and accepted within half a second."""
    page = stub.page
    stub.answer("phabet = 1", 0)
    stub.open("")
    page.type("al", delay_ms=15)
    page.until_ghost("phabet = 1")
    page.press(key)
    page.until(lambda: page.active() == ("alphabet = 1" if key == "Tab" else "alphabet"), "accepted")
    page.press("Control+z")
    page.until(lambda: page.active() in ("al", ""), "undone")
    assert page.active() == "al"


def test_what_an_answer_repeats_of_the_line_is_not_put_in_twice(stub):
    page = stub.page
    stub.answer("b, c)", 1)
    stub.open("mid()")
    page.press("ArrowLeft")
    page.type("a", delay_ms=30)
    page.until_ghost("b, c")
    page.press("Tab")
    page.until(lambda: page.active() == "mid(ab, c)", "accepted")


def test_an_empty_answer_takes_the_ghost_away_and_leaves_tab_alone(stub):
    page = stub.page
    stub.answer("23", 0)
    stub.open("    x")
    page.press("Home", "Home")
    page.type("1", delay_ms=30)
    page.until_ghost("23")
    stub.answer("", 0)
    page.press("Escape", "Enter")
    page.type("4", delay_ms=30)
    page.until(lambda: page.ghost() == "", "gone")
    page.press("Home", "Tab")
    page.until(lambda: page.active() == "    14    x", "indented")


def test_what_an_answer_would_replace_and_not_put_back_is_not_shown(stub):
    page = stub.page
    stub.answer("tail", 1)
    stub.open("mid(a)")
    page.press("ArrowLeft")
    page.type("b", delay_ms=30)
    page.until(lambda: stub.tapped.settled(10) == [], "answered")
    time.sleep(0.3)
    assert page.ghost() == "" and page.active() == "mid(ab)"
    stub.answer("tail)", 1)
    page.type("c", delay_ms=30)
    page.until_ghost("tail")


def test_a_question_never_comes_before_the_key_that_it_is_about(lab, page):
    name = lab.open("v = 1")
    page.type("23456", delay_ms=5)
    lab.agrees(name)
    character = len("v = 1")
    for message in lab.tapped.messages("editor"):
        params = message.get("params") or {}
        if name not in json.dumps(params):
            continue
        if message["method"] == "notebookDocument/didChange":
            character += 1
        elif message["method"] == "textDocument/inlineCompletion":
            assert params["position"]["character"] == character


def test_an_answer_that_comes_when_the_cursor_is_elsewhere_is_not_shown(slow):
    page = slow.page
    slow.open("value = 1")
    before = len(slow.tapped.asked())
    page.type("2")
    page.until(lambda: len(slow.tapped.asked()) > before, "asked")
    page.press("ArrowLeft", "ArrowLeft")
    page.until(lambda: slow.tapped.unanswered() == [], "answered")
    time.sleep(0.1)
    assert page.ghost() == ""


def test_what_is_shown_grows_and_stops_growing_with_the_next_key(slow):
    page = slow.page
    slow.open("values = [1]", "def f(values):\n    total = 0")
    page.press("Enter")
    page.until(lambda: page.ghost() != "", "the beginning")
    first = page.ghost()
    page.until(lambda: len(page.ghost()) > len(first) and page.ghost().startswith(first), "more of it")
    page.type("return values", delay_ms=70)
    page.until(lambda: slow.tapped.unanswered() == [], "answered")
    assert page.active() == "def f(values):\n    total = 0\n    return values"
    assert page.complaints() == []


def test_two_notebooks_on_one_kernel_are_two(lab, page):
    first = lab.open("only_in_the_first = 1")
    kernel = page.kernel()
    second = next(NAMES)
    made = json.dumps({"path": second, "name": second, "type": "notebook", "kernel": {"id": kernel}}).encode()
    request = urllib.request.Request(f"{lab.jupyter.url}api/sessions?token={TOKEN}", data=made, method="POST")
    urllib.request.urlopen(request, timeout=180).close()
    (lab.jupyter.work / second).write_text(notebook("y = 2"))
    page.execute("docmanager:open", path=second)
    page.until(lambda: page.cells() == [("code", "y = 2")], "the second is in front")
    page.until(lambda: lab.of(second), "the server has it")
    page.until(lambda: page.kernel() == kernel, "the same kernel")
    page.press("Enter", "End")
    page.type("\nz = only", delay_ms=30)
    page.until(lambda: lab.tapped.unanswered() == [], "answered")
    lab.agrees(second)
    assert lab.server_cells(first) == [("code", "only_in_the_first = 1")]
    own = {
        one["params"]["textDocument"]["uri"].partition("?")[0]
        for one in lab.said("editor", "textDocument/inlineCompletion")[-3:]
    }
    assert len(own) == 1 and own.pop().endswith(second)


def test_another_language_is_commented_its_own_way_and_completed(lab, page):
    lab.jupyter.add_kernel("silent", "javascript")
    name = lab.open("const a = 1;", ("markdown", "words"), "let b", language="javascript", kernel="silent")
    page.type(" = a", delay_ms=30)
    page.until(lambda: page.ghost() != "", "ghost text")
    opened = lab.of(name)[0]["params"]["cellTextDocuments"]
    assert [text["languageId"] for text in opened] == ["javascript", "markdown", "javascript"]
    lab.agrees(name)


def test_the_language_server_comes_back_when_it_was_killed(lab, page):
    lab.open("value = ")
    (server,) = [
        child for child in psutil.Process(lab.jupyter.process.pid).children() if "tap.py" in " ".join(child.cmdline())
    ]
    for process in [*server.children(recursive=True), server]:
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended with the one before
            process.kill()
    page.until(lambda: len(lab.said("editor", "initialize")) > 1, "started again")
    page.until(lab.is_ready, "ready")
    page.type("7", delay_ms=30)
    page.until_ghost("value = 7  # scripted")


@pytest.mark.parametrize("query", ["", "?token=wrong"])
def test_who_is_not_known_gets_no_connection(lab, query):
    assert refused(f"ws://127.0.0.1:{lab.jupyter.port}{BASE}foretype/ws{query}") == 403


def test_a_page_from_elsewhere_gets_no_connection_with_the_users_cookie(lab):
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar := CookieJar()))
    opener.open(f"{lab.jupyter.url}lab?token={TOKEN}", timeout=180).close()
    cookie = {"Cookie": "; ".join(f"{one.name}={one.value}" for one in jar)}
    url = f"ws://127.0.0.1:{lab.jupyter.port}{BASE}foretype/ws"
    assert refused(url, **cookie, Origin="http://evil.example") == 403
    with connect(
        url, additional_headers={**cookie, "Origin": f"http://127.0.0.1:{lab.jupyter.port}"}, proxy=None
    ) as it:
        assert json.loads(it.recv(timeout=180))["method"] == "foretype/hello"


def refused(url, **headers):
    """The status by which a connection is refused."""
    with pytest.raises(InvalidStatus) as refused:
        connect(url, additional_headers=headers, proxy=None, open_timeout=180)
    return refused.value.response.status_code


def test_who_has_the_token_gets_one_and_may_not_end_the_server(lab):
    with connect(f"ws://127.0.0.1:{lab.jupyter.port}{BASE}foretype/ws?token={TOKEN}", proxy=None) as it:
        hello = json.loads(it.recv(timeout=180))
        assert hello["method"] == "foretype/hello" and hello["params"]["rootUri"] == lab.jupyter.work.as_uri()
        it.send(json.dumps({"jsonrpc": "2.0", "id": 7, "method": "shutdown"}))
        it.send("no JSON")
        it.send(json.dumps({"jsonrpc": "2.0", "id": "a", "method": "foretype/status", "params": {}}))
        told = (json.loads(it.recv(timeout=180)) for _ in itertools.count())
        answers = list(
            itertools.islice((one for one in told if "method" not in one), 3)
        )  # the server tells its status, too
    assert [answer.get("error", {}).get("code") for answer in answers] == [-32601, -32600, None]
    assert answers[2]["id"] == "a" and answers[2]["result"]["version"]


def test_out_of_the_box_the_server_of_its_own_environment_is_started_with_the_users_options(served, tmp_path):
    options = {"gatewayUrl": served.url, "index": False, "telemetry": False}
    jupyter = Jupyter(tmp_path, settings={"foretype-jupyter:plugin": {"options": options}})
    page = Page(jupyter)
    try:
        page.open("a.ipynb", "value = ")
        end_s = time.monotonic() + 180
        while page.ghost() == "" and time.monotonic() < end_s:
            page.type("1")
            page.press("Backspace")
            page.type(" ")
            time.sleep(0.5)
        assert page.ghost().endswith("# scripted")
        if pictures := os.environ.get("FORETYPE_SCREENSHOTS"):
            page.do("screenshot", path=f"{pictures}/jupyter.png")
    finally:
        page.close()
        jupyter.close()
