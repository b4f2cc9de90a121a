"""Emacs with lsp-mode 10 in a terminal, with the real server and a real gateway that answers by a script."""

import pytest
from e2e.editors.emacs_support import Emacs
from e2e.editors.session_support import tapping
from e2e.editors.terminal_cases import TerminalCases
from e2e.editors.test_hard_times import processes
from e2e.lsp_support import SOURCE, gateway, server_command

MISSING = Emacs.missing()
pytestmark = [pytest.mark.skipif(MISSING is not None, reason=str(MISSING)), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def started(served, tmp_path_factory):
    """One start for all tests of this file but the last."""
    folder = tmp_path_factory.mktemp("emacs")
    with Emacs(folder, SOURCE, server_command("--gateway", served.url, log=folder / "lsp.log")) as it:
        it.until_ready()
        yield it


@pytest.fixture
def emacs(started):
    started.afresh(SOURCE)
    return started


@pytest.fixture
def editor(emacs):
    return emacs


class TestWhatIsAsInEveryTerminal(TerminalCases):
    """With the process of this file."""


def test_several_lines_are_shown_and_accepted_at_once(emacs):
    emacs.type("def g(b):\n    ")
    emacs.until("    return None")
    emacs.taken()
    assert emacs.buffer() == SOURCE + "def g(b):\n      # scripted\n    return None"


def test_what_was_typed_through_is_not_left_behind_and_never_off_the_screen(emacs):
    emacs.offered()
    for char in "val":
        emacs.type(char)
        emacs.until(lambda _, char=char: emacs.buffer().endswith(char))
        assert "value = value =  # scripted" in emacs.screen()
    emacs.taken()
    assert emacs.buffer() == SOURCE + "    value = value =  # scripted"


def test_what_was_typed_away_from_is_hidden_at_once(emacs):
    emacs.offered()
    emacs.type("X")
    emacs.until(lambda screen: "X" in screen and "value = value =" not in screen)
    assert emacs.buffer() == SOURCE + "    value = X"


def test_a_cursor_that_is_moved_back_goes_where_it_should_and_takes_the_suggestion_away(emacs):
    emacs.type("value = ")
    emacs.until("value = value =  # scripted")
    emacs.press("Left")
    emacs.until(lambda _: emacs.ghost() == "")
    emacs.type("X")
    emacs.until(lambda _: emacs.buffer() == SOURCE + "value =X ")


def test_an_accept_waits_for_no_server(served, tmp_path):
    """lsp-mode by itself waits ten seconds for the answer to an item's command, and complains."""
    command = tapping(
        tmp_path / "tap.jsonl", server_command("--gateway", served.url)
    )  # a stopped child is none to Emacs
    with Emacs(tmp_path, SOURCE, command) as emacs:
        emacs.until_ready()
        emacs.offered()
        [server] = [
            one for one in processes(tmp_path, "foretype_lsp") if not any("tap.py" in word for word in one.cmdline())
        ]
        server.suspend()
        try:
            emacs.press("Tab")
            emacs.type("X")
            emacs.until("value = value =  # scriptedX")
        finally:
            server.resume()
        emacs.until(lambda _: emacs.buffer() == SOURCE + "    value = value =  # scriptedX")
        assert emacs.complaints() == []


def test_the_mode_line_says_so_while_the_gateway_is_away(tmp_path):
    with gateway(tmp_path) as served, Emacs(tmp_path, SOURCE, server_command("--gateway", served.url)) as emacs:
        emacs.until_ready()
        served.kill()
        emacs.type("    value = 1\n")
        emacs.until("Foretype:degraded")
        assert emacs.buffer() == SOURCE + "    value = 1\n"
        assert emacs.complaints() == []
