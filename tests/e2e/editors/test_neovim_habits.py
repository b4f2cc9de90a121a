"""What a hand is used to in Neovim, with the plugin as without it: undo, Ctrl+C, keys with Alt, files of DOS. In both kinds of it."""

import contextlib

import pytest
from e2e.editors.neovim_support import Neovim, OldNeovim
from e2e.lsp_support import SOURCE, server_command

pytestmark = pytest.mark.timeout(300)

INDENTS_NOT = "vim.opt.autoindent = false vim.cmd('filetype indent off')"


@pytest.fixture(scope="module", params=[Neovim, OldNeovim])
def started(request, served, tmp_path_factory):
    if (missing := request.param.missing()) is not None:
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("neovim_habits")
    command = server_command("--gateway", served.url, log=folder / "lsp.log")
    with request.param(folder, SOURCE, command, config=INDENTS_NOT) as it:
        it.until_ready()
        yield it


@pytest.fixture
def neovim(started):
    started.afresh(SOURCE)
    return started


def mode(neovim):
    return neovim.ask("vim.fn.mode()")


def test_an_accept_is_an_undo_step_of_its_own(neovim):
    neovim.offered()
    neovim.taken()
    neovim.type("# mine")
    neovim.press("Escape")
    for left in ("    value = value =  # scripted", "    value = ", ""):
        neovim.type("u")
        neovim.until(lambda _, left=left: neovim.buffer() == (SOURCE + left).removesuffix("\n" * (not left)))
    assert mode(neovim) == "n"


def left(neovim, key):
    """Insert mode, by this key. Of Ctrl+C that comes while it works on a message Neovim 0.7 interrupts that alone: it is pressed again."""
    for _ in range(5):
        neovim.press(key)
        with contextlib.suppress(TimeoutError):
            neovim.until(lambda _: mode(neovim) == "n", 5)
            return
    raise AssertionError(f"{key} does not leave insert mode")


@pytest.mark.parametrize("key", ["Escape", "C-c", "C-["])
def test_whatever_key_leaves_insert_mode_takes_the_suggestion_away(neovim, key):
    neovim.offered()
    left(neovim, key)
    neovim.until(lambda _: neovim.ghost() == "")
    neovim.type("gg")
    neovim.until(lambda _: neovim.ask("vim.fn.line('.')") == 1)
    assert neovim.ghost() == ""
    neovim.type("Go    value = ")
    neovim.until(lambda _: "scripted" in neovim.ghost())


@pytest.mark.parametrize("key", ["M-l", "M-Right"])
def test_a_key_with_alt_is_escape_and_the_key_where_nothing_is_shown(neovim, key):
    neovim.type("3G0i")  # right of the cursor stands code: nothing is asked there
    neovim.until(lambda _: mode(neovim) == "i")
    neovim.press(key)
    neovim.until(lambda _: mode(neovim) == "n")
    assert neovim.buffer() == SOURCE.removesuffix("\n")


def test_a_file_of_dos_shows_and_takes_lines_without_carriage_returns(neovim):
    neovim.file.write_bytes(SOURCE.replace("\n", "\r\n").encode())
    neovim.type(":e!")
    neovim.press("Enter", "G")
    neovim.until(lambda _: neovim.ask("vim.bo.fileformat") == "dos")
    neovim.type("odef g(b):\n    ")
    neovim.until("    return None")
    assert "\r" not in neovim.ghost()
    neovim.taken()
    neovim.press("Escape")
    neovim.type(":w")
    neovim.press("Enter")
    whole = SOURCE + "def g(b):\n      # scripted\n    return None\n"
    neovim.until(lambda _: neovim.file.read_bytes() == whole.replace("\n", "\r\n").encode())
