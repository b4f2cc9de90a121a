"""Neovim before 0.12, which draws no suggestions itself: the plugin's fallback, in Debian's 0.7.2 or what is there."""

import pytest
from e2e.editors.neovim_support import OldNeovim
from e2e.editors.terminal_cases import NeovimCases
from e2e.lsp_support import SOURCE, server_command

MISSING = OldNeovim.missing()
pytestmark = [pytest.mark.skipif(MISSING is not None, reason=str(MISSING)), pytest.mark.timeout(300)]

INDENTS_NOT = "vim.opt.autoindent = false vim.cmd('filetype indent off')"


@pytest.fixture(scope="module")
def started(served, tmp_path_factory):
    """One start for all tests of this file."""
    folder = tmp_path_factory.mktemp("neovim_old")
    command = server_command("--gateway", served.url, log=folder / "lsp.log")
    with OldNeovim(folder, SOURCE, command, config=INDENTS_NOT) as it:
        it.until_ready()
        yield it


@pytest.fixture
def neovim(started):
    started.afresh(SOURCE)
    return started


@pytest.fixture
def editor(neovim):
    return neovim


def test_several_lines_are_shown_and_accepted_at_once(neovim):
    neovim.press("G")
    neovim.type("odef g(b):\n    ")
    neovim.until("    return None")
    neovim.taken()
    assert neovim.buffer() == SOURCE + "def g(b):\n      # scripted\n    return None"


def test_what_was_typed_away_from_is_hidden_at_once_and_tab_is_a_tab(neovim):
    neovim.offered()
    neovim.type("X")
    neovim.press("Tab")
    neovim.until(lambda _: "X " in neovim.buffer() or "X\t" in neovim.buffer())
    assert "scripted" not in neovim.buffer()


def test_while_the_completion_menu_is_open_nothing_is_shown(neovim):
    neovim.offered()
    neovim.press("C-n")
    neovim.until(lambda _: neovim.ask("vim.fn.pumvisible()") == 1 and neovim.ghost() == "")
    neovim.press("C-e")
    neovim.until(lambda _: neovim.ask("vim.fn.pumvisible()") == 0)
    assert neovim.buffer() == SOURCE + "    value = "


def test_leaving_insert_mode_takes_the_suggestion_away(neovim):
    neovim.offered()
    neovim.press("Escape")
    neovim.until(lambda _: neovim.ghost() == "")
    assert neovim.buffer() == SOURCE + "    value = "


def test_a_file_that_was_read_again_gets_suggestions_still(neovim):
    neovim.type(":e!")
    neovim.press("Enter", "G")
    neovim.type("o    value = ")
    neovim.until("value = value =  # scripted")


class TestWhatIsAsInEveryVersion(NeovimCases):
    """With the process of this file."""
