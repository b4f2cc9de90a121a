"""Neovim 0.12 in a terminal, with the real server and a real gateway that answers by a script."""

import pytest
from e2e.editors.neovim_support import Neovim
from e2e.editors.terminal_cases import NeovimCases
from e2e.lsp_support import SOURCE, server_command

MISSING = Neovim.missing()
pytestmark = [pytest.mark.skipif(MISSING is not None, reason=str(MISSING)), pytest.mark.timeout(300)]

CONFIG = """
vim.opt.autoindent = true
local defer = vim.defer_fn
vim.g.own_timers, vim.g.own_timers_ended = true, 0
vim.defer_fn = function(run, ms)  -- Neovim's delay before it asks by itself, and nothing else of these tests, is 200 ms
  if ms ~= 200 then
    return defer(run, ms)
  end
  return defer(function()
    if vim.g.own_timers then
      run()
    end
    vim.g.own_timers_ended = vim.g.own_timers_ended + 1
  end, ms)
end
"""


NOTHING_IS_ASKED = """(function()
    local client = vim.lsp.get_clients()[1]
    vim.kept_request = client.request
    client.request = function(self, method, ...)
        return method ~= 'textDocument/inlineCompletion' and vim.kept_request(self, method, ...)
    end
    return true
end)()"""


@pytest.fixture(scope="module")
def started(served, tmp_path_factory):
    """One start for all tests of this file."""
    folder = tmp_path_factory.mktemp("neovim")
    command = server_command("--gateway", served.url, log=folder / "lsp.log")
    with Neovim(folder, SOURCE, command, config=CONFIG) as it:
        it.until_ready()
        yield it


@pytest.fixture
def neovim(started):
    started.afresh(SOURCE)
    return started


@pytest.fixture
def editor(neovim):
    return neovim


def test_the_plugin_asks_by_itself_and_the_timer_of_neovim_asks_nothing_twice(neovim):
    neovim.offered()  # by now Neovim has asked in this buffer
    neovim.ask("(function() vim.g.own_timers = false return true end)()")
    try:
        neovim.type("x = ")
        neovim.until(lambda _: "scripted" in neovim.ghost())
    finally:
        neovim.ask("(function() vim.g.own_timers = true return true end)()")
    ended = neovim.ask("vim.g.own_timers_ended")
    neovim.type("y = ")
    neovim.until(lambda _: "scripted" in neovim.ghost())
    neovim.until(lambda _: neovim.ask("vim.g.own_timers_ended") > ended)
    asked = questions(neovim)
    neovim.ask("(function() vim.cmd('doautocmd CursorMovedI') return true end)()")
    neovim.until(lambda _: neovim.ask("vim.g.own_timers_ended") > ended + 1)
    assert questions(neovim) <= asked + 1, "Neovim's own timer asked the same again"


def questions(neovim):
    """How many have ended."""
    return sum(neovim.status()["counts"][name] for name in ("answered", "superseded", "cancelled", "stale"))


def test_several_lines_are_shown_and_accepted_at_once(neovim):
    neovim.press("G")
    neovim.type("odef g(b):\n")  # Neovim indents the line
    neovim.until("    return None")
    assert neovim.ghost() == "  # scripted\n    return None"
    neovim.taken()
    assert neovim.buffer() == SOURCE + "def g(b):\n      # scripted\n    return None"
    assert neovim.complaints() == [""]


def test_beside_the_completion_menu_tab_accepts_what_is_shown_and_closes_it(neovim):
    neovim.press("G")
    neovim.type("o    vast = value = va")  # two words to choose from: else there is no menu
    neovim.press("C-n")
    neovim.until(lambda _: neovim.ask("vim.fn.pumvisible()") == 1)
    chosen = neovim.buffer().removeprefix(SOURCE)
    neovim.until(lambda _: "scripted" in neovim.ghost())
    assert neovim.ask("vim.fn.pumvisible()") == 1
    shown = neovim.ghost()
    neovim.type("\tz")
    neovim.until(lambda _: neovim.buffer().endswith("z"))
    assert neovim.buffer() == SOURCE + chosen + shown + "z"
    assert neovim.ask("vim.fn.pumvisible()") == 0
    assert neovim.complaints() == [""]


def test_keys_of_the_completion_menu_are_its_own(neovim):
    neovim.press("G")
    neovim.type("o    vast = value = va")  # two words to choose from: else there is no menu
    neovim.until(lambda _: "scripted" in neovim.ghost())
    neovim.press("C-n")
    neovim.until(lambda _: neovim.ask("vim.fn.pumvisible()") == 1)
    neovim.press("C-e")
    neovim.until(lambda _: neovim.ask("vim.fn.pumvisible()") == 0)
    assert neovim.buffer() == SOURCE + "    vast = value = va"
    neovim.press("C-n")
    neovim.until(lambda _: neovim.ask("vim.fn.pumvisible()") == 1)
    chosen = neovim.buffer()
    neovim.press("C-y")
    neovim.until(lambda _: neovim.ask("vim.fn.pumvisible()") == 0)
    assert neovim.buffer() == chosen


def test_what_was_typed_away_from_is_hidden_and_tab_is_a_tab(neovim):
    neovim.offered()
    neovim.ask(NOTHING_IS_ASKED)
    try:
        neovim.type("X")
        neovim.until("value = X")
        neovim.until(lambda _: neovim.ghost() == "")
        neovim.press("Tab")
        neovim.until(lambda _: "X " in neovim.buffer())
    finally:
        neovim.ask("(function() vim.lsp.get_clients()[1].request = vim.kept_request return true end)()")
    assert neovim.buffer() == SOURCE + "    value = X   "


def test_an_answer_without_a_suggestion_takes_the_old_one_off_the_screen(neovim):
    neovim.press("G")
    neovim.type("o    value = ")
    neovim.until("# scripted")
    neovim.press("Left", "Left")  # in the middle of a line nothing is offered
    neovim.until(lambda _: neovim.ghost() == "")
    assert neovim.buffer() == SOURCE + "    value = "


def test_closers_right_of_the_cursor_stay_right(neovim):
    neovim.press("G")
    neovim.type("o    print()")
    neovim.press("Left")
    neovim.type("va")
    neovim.until(lambda _: neovim.ghost() != "")
    neovim.taken()
    line = neovim.buffer().splitlines()[-1]
    assert line.startswith("    print(va")
    assert "vava" not in line


class TestWhatIsAsInEveryVersion(NeovimCases):
    """With the process of this file."""
