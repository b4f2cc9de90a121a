"""Neovim 0.12, Neovim before it and Emacs with lsp-mode 10 in a terminal, with the real server and a real gateway that answers by a script.

Of Neovim before 0.12, which draws no suggestions itself, it is the plugin's fallback, in Debian's 0.7.2 or what is there.
"""

import pytest
from e2e.editors.emacs_support import Emacs
from e2e.editors.neovim_support import Neovim, OldNeovim
from e2e.editors.session_support import RESTED, Tapped, tapping
from e2e.editors.terminal_support import available
from e2e.editors.test_hard_times import processes
from e2e.lsp_support import SOURCE, gateway, server_command

pytestmark = pytest.mark.timeout(300)

KINDS = {"neovim": Neovim, "neovim_old": OldNeovim, "emacs": Emacs}
NEOVIM = pytest.mark.parametrize("started", ["neovim"], indirect=True)
OLD_NEOVIM = pytest.mark.parametrize("started", ["neovim_old"], indirect=True)
NEOVIMS = pytest.mark.parametrize("started", ["neovim", "neovim_old"], indirect=True)
EMACS = pytest.mark.parametrize("started", ["emacs"], indirect=True)
CONFIG = {
    Neovim: """
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
""",
    OldNeovim: "vim.opt.autoindent = false vim.cmd('filetype indent off')",
    Emacs: "",
}
BLOCK = {Neovim: "def g(b):\n", OldNeovim: "def g(b):\n    ", Emacs: "def g(b):\n    "}
"""The first of these indents the line by itself."""
SCALE = "def scale(v):\n    pass\n"
DOCUMENTED = 'def scale(v):\n    """Scale a vector."""\n    pass\n'
NOTHING_IS_ASKED = """(function()
    local client = vim.lsp.get_clients()[1]
    vim.kept_request = client.request
    client.request = function(self, method, ...)
        return method ~= 'textDocument/inlineCompletion' and vim.kept_request(self, method, ...)
    end
    return true
end)()"""


@pytest.fixture(scope="module", params=KINDS)
def started(request, chatting, tmp_path_factory):
    """One start of each for the tests of this file, and what it and its server have said to each other."""
    kind = available(KINDS[request.param])
    folder = tmp_path_factory.mktemp(request.param)
    command = tapping(folder / "tap.jsonl", server_command("--gateway", chatting.url, log=folder / "lsp.log"))
    with kind(folder, SOURCE, command, config=CONFIG[kind]) as it:
        it.until_ready()
        yield it, Tapped(folder / "tap.jsonl")


@pytest.fixture
def editor(started):
    it, _ = started
    it.afresh(SOURCE)
    return it


def mode(neovim):
    return neovim.ask("vim.fn.mode()")


def test_ghost_text_is_shown_and_tab_puts_it_into_the_buffer(editor):
    before = editor.status()["counts"]["accepted"]
    editor.offered()
    assert editor.buffer() == SOURCE + "    value = "
    editor.taken()
    assert editor.buffer() == SOURCE + "    value = value =  # scripted"
    editor.until(lambda _: editor.status()["counts"]["accepted"] == before + 1)
    assert not any(editor.complaints())


def test_a_word_and_a_line_are_accepted_by_themselves(editor):
    editor.offered()
    editor.press("M-Right")
    editor.until(lambda _: editor.buffer() == SOURCE + "    value = value")
    editor.until("value = value =  # scripted")
    editor.press("M-l")
    editor.until(lambda _: editor.buffer() == SOURCE + "    value = value =  # scripted")
    assert not any(editor.complaints())


def test_before_closers_the_line_is_accepted_as_it_was_shown(editor):
    editor.new_line()
    editor.type("print()")
    editor.press("Left")
    editor.type("f")
    editor.until(lambda _: "# scripted" in editor.ghost())
    shown = next(line for line in editor.screen().splitlines() if line.startswith("print"))
    editor.taken()
    assert editor.buffer().splitlines()[3] == shown.rstrip()
    assert shown.startswith("print(f") and "ff" not in shown


def test_several_lines_are_shown_and_accepted_at_once(editor):
    editor.new_line()
    editor.type(BLOCK[type(editor)])
    editor.until("    return None")
    assert editor.ghost() == "  # scripted\n    return None"
    editor.taken()
    assert editor.buffer() == SOURCE + "def g(b):\n      # scripted\n    return None"
    assert not any(editor.complaints())


def test_what_was_typed_through_before_the_next_answer_is_not_left_behind(editor):
    editor.offered()
    editor.type("val")  # before it is asked again
    editor.taken()
    assert editor.buffer() == SOURCE + "    value = value =  # scripted"


def test_what_was_typed_away_from_is_hidden_at_once(editor):
    editor.offered()
    editor.type("X")
    editor.until(lambda screen: "X" in screen and "value = value =" not in screen)
    assert editor.buffer() == SOURCE + "    value = X"


def test_a_cursor_that_is_moved_back_goes_where_it_should_and_takes_the_suggestion_away(editor):
    editor.new_line()
    editor.type("value = ")
    editor.until("value = value =  # scripted")
    editor.press("Left", "Left")  # in the middle of a line nothing is offered
    editor.until(lambda _: editor.ghost() == "")
    editor.type("X")
    editor.until(lambda _: editor.buffer() == SOURCE + "value X= ")


def test_where_the_cursor_rests_is_told_and_where_it_types_is_not(started, editor):
    _, tapped = started

    def rested():
        told = [one["params"] for one in tapped.messages("editor") if one.get("method") == RESTED]
        return [one["position"] for one in told if one["textDocument"]["uri"].endswith(f"/{editor.file.name}")]

    editor.new_line()
    editor.type("total = ")
    editor.until(lambda _: editor.ghost() != "")
    before = rested()  # of the start, if it rested there
    assert all(place["character"] == 0 for place in before)
    editor.press("Left")
    editor.until(lambda _: len(rested()) > len(before))
    assert rested()[len(before) :] == [{"line": 3, "character": len("total = ") - 1}]


def test_the_prompt_behind_a_suggestion_is_explained(editor):
    editor.new_line()
    editor.type("explained = ")  # what no test before has asked about
    editor.until(lambda _: "# scripted" in editor.ghost())
    if isinstance(editor, Neovim):
        editor.press("Escape")
        editor.until(lambda _: mode(editor) == "n")
    editor.command("explain")
    screen = editor.until("layout psm_line_last")
    assert "prompt: " in screen and "prefill" in screen and "middle" in screen
    assert not any(editor.complaints())


def test_a_function_is_explained_documented_and_completed(editor, chat):
    editor.afresh(SCALE)
    editor.to_start()
    chat.again("It scales", " a vector.")
    editor.command("explain-code")
    editor.until("It scales a vector.")
    chat.again("Scale a vector.")
    editor.command("document-code")
    editor.until(lambda _: editor.buffer().rstrip("\n") == DOCUMENTED.rstrip("\n"))
    editor.command("complete-function")
    editor.until(lambda _: "return None" in editor.buffer())
    assert editor.buffer().startswith(DOCUMENTED.removesuffix("    pass\n").rstrip("\n"))
    assert "pass" not in editor.buffer()
    editor.command("document-code")
    editor.until("scale is documented already")


@NEOVIMS
def test_keys_that_come_with_tab_come_behind_what_it_accepts(editor):
    editor.offered()
    editor.type("\tval")  # in one go: Neovim has them all before it does the first
    editor.until(lambda _: editor.buffer().endswith("val"))
    assert editor.buffer() == SOURCE + "    value = value =  # scriptedval"


@NEOVIMS
@pytest.mark.parametrize("command", ["file", "saveas"])
def test_a_file_under_another_name_gets_suggestions_still(editor, command, tmp_path):
    """Neovim tells of changes under a name then that it has not opened."""
    editor.type(f":{command} {tmp_path / 'other.py'}\rGo    value = ")
    editor.until("value = value =  # scripted")
    assert "etached" not in "".join(editor.complaints())


@NEOVIMS
def test_a_file_that_was_read_again_gets_suggestions_still(editor):
    editor.type(":e!")
    editor.press("Enter")
    editor.offered()


@NEOVIMS
def test_checkhealth_finds_nothing_wrong(editor):
    editor.type(":checkhealth foretype")
    editor.press("Enter")
    screen = editor.until("ready: scripted")
    assert "ERROR" not in screen


@NEOVIMS
def test_an_accept_is_an_undo_step_of_its_own(editor):
    editor.offered()
    editor.taken()
    editor.type("# mine")
    editor.press("Escape")
    for left in ("    value = value =  # scripted", "    value = ", ""):
        editor.type("u")
        editor.until(lambda _, left=left: editor.buffer() == (SOURCE + left).removesuffix("\n" * (not left)))
    assert mode(editor) == "n"


@NEOVIMS
@pytest.mark.parametrize("key", ["Escape", "C-c", "C-["])
def test_whatever_key_leaves_insert_mode_takes_the_suggestion_away(editor, key):
    editor.offered()
    editor.press(key)
    editor.until(lambda _: mode(editor) == "n" and editor.ghost() == "")
    editor.type("gg")
    editor.until(lambda _: editor.ask("vim.fn.line('.')") == 1)
    assert editor.ghost() == ""
    editor.type("Go    value = ")
    editor.until(lambda _: "scripted" in editor.ghost())


@NEOVIMS
@pytest.mark.parametrize("key", ["M-l", "M-Right"])
def test_a_key_with_alt_is_escape_and_the_key_where_nothing_is_shown(editor, key):
    editor.type("3G0i")  # right of the cursor stands code: nothing is asked there
    editor.until(lambda _: mode(editor) == "i")
    editor.press(key)
    editor.until(lambda _: mode(editor) == "n")
    assert editor.buffer() == SOURCE.removesuffix("\n")


@NEOVIMS
def test_a_file_of_dos_shows_and_takes_lines_without_carriage_returns(editor):
    editor.file.write_bytes(SOURCE.replace("\n", "\r\n").encode())
    editor.type(":e!")
    editor.press("Enter", "G")
    editor.until(lambda _: editor.ask("vim.bo.fileformat") == "dos")
    editor.type("o" + BLOCK[type(editor)])
    editor.until("    return None")
    assert "\r" not in editor.ghost()
    editor.taken()
    editor.press("Escape")
    editor.type(":w")
    editor.press("Enter")
    whole = SOURCE + "def g(b):\n      # scripted\n    return None\n"
    editor.until(lambda _: editor.file.read_bytes() == whole.replace("\n", "\r\n").encode())


@NEOVIM
def test_the_plugin_asks_by_itself_and_the_timer_of_neovim_asks_nothing_twice(editor):
    editor.offered()  # by now Neovim has asked in this buffer
    editor.ask("(function() vim.g.own_timers = false return true end)()")
    try:
        editor.type("x = ")
        editor.until(lambda _: "scripted" in editor.ghost())
    finally:
        editor.ask("(function() vim.g.own_timers = true return true end)()")
    ended = editor.ask("vim.g.own_timers_ended")
    editor.type("y = ")
    editor.until(lambda _: "scripted" in editor.ghost())
    editor.until(lambda _: editor.ask("vim.g.own_timers_ended") > ended)
    asked = questions(editor)
    editor.ask("(function() vim.cmd('doautocmd CursorMovedI') return true end)()")
    editor.until(lambda _: editor.ask("vim.g.own_timers_ended") > ended + 1)
    assert questions(editor) <= asked + 1, "Neovim's own timer asked the same again"


def questions(editor):
    """How many have ended."""
    return sum(editor.status()["counts"][name] for name in ("answered", "superseded", "cancelled", "stale"))


@NEOVIM
def test_beside_the_completion_menu_tab_accepts_what_is_shown_and_closes_it(editor):
    chosen = chosen_from_menu(editor)
    editor.until(lambda _: "scripted" in editor.ghost())
    assert editor.ask("vim.fn.pumvisible()") == 1
    shown = editor.ghost()
    editor.type("\tz")
    editor.until(lambda _: editor.buffer().endswith("z"))
    assert editor.buffer() == chosen + shown + "z"
    assert editor.ask("vim.fn.pumvisible()") == 0
    assert editor.complaints() == [""]


@NEOVIM
def test_keys_of_the_completion_menu_are_its_own(editor):
    chosen_from_menu(editor)
    editor.press("C-e")
    editor.until(lambda _: editor.ask("vim.fn.pumvisible()") == 0)
    assert editor.buffer() == SOURCE + "    vast = value = va"
    editor.press("C-n")
    editor.until(lambda _: editor.ask("vim.fn.pumvisible()") == 1)
    chosen = editor.buffer()
    editor.press("C-y")
    editor.until(lambda _: editor.ask("vim.fn.pumvisible()") == 0)
    assert editor.buffer() == chosen


def chosen_from_menu(neovim):
    """What is in the buffer once the menu is open, with its first word chosen."""
    neovim.press("G")
    neovim.type("o    vast = value = va")  # two words to choose from: else there is no menu
    neovim.until(lambda _: "scripted" in neovim.ghost())
    neovim.press("C-n")
    neovim.until(lambda _: neovim.ask("vim.fn.pumvisible()") == 1)
    return neovim.buffer()


@NEOVIM
def test_what_was_typed_away_from_is_hidden_and_tab_is_a_tab(editor):
    editor.offered()
    editor.ask(NOTHING_IS_ASKED)
    try:
        editor.type("X")
        editor.until("value = X")
        editor.until(lambda _: editor.ghost() == "")
        editor.press("Tab")
        editor.until(lambda _: "X " in editor.buffer())
    finally:
        editor.ask("(function() vim.lsp.get_clients()[1].request = vim.kept_request return true end)()")
    assert editor.buffer() == SOURCE + "    value = X   "


@OLD_NEOVIM
def test_what_was_typed_away_from_is_not_taken_by_a_tab_at_once(editor):
    editor.offered()
    editor.type("X")
    editor.press("Tab")
    editor.until(lambda _: "X " in editor.buffer() or "X\t" in editor.buffer())
    assert "scripted" not in editor.buffer()


@OLD_NEOVIM
def test_while_the_completion_menu_is_open_nothing_is_shown(editor):
    editor.offered()
    editor.press("C-n")
    editor.until(lambda _: editor.ask("vim.fn.pumvisible()") == 1 and editor.ghost() == "")
    editor.press("C-e")
    editor.until(lambda _: editor.ask("vim.fn.pumvisible()") == 0)
    assert editor.buffer() == SOURCE + "    value = "


@EMACS
def test_what_is_typed_through_is_never_off_the_screen(editor):
    editor.offered()
    for char in "val":
        editor.type(char)
        editor.until(lambda _, char=char: editor.buffer().endswith(char))
        assert "value = value =  # scripted" in editor.screen()


def test_an_accept_of_emacs_waits_for_no_server(served, tmp_path):
    """lsp-mode by itself waits ten seconds for the answer to an item's command, and complains."""
    # A stopped child is none to Emacs.
    command = tapping(tmp_path / "tap.jsonl", server_command("--gateway", served.url))
    with available(Emacs)(tmp_path, SOURCE, command) as emacs:
        emacs.until_ready()
        emacs.offered()
        found = processes(tmp_path, "foretype_lsp")
        [server] = [one for one in found if not any("tap.py" in word for word in one.cmdline())]
        server.suspend()
        try:
            emacs.press("Tab")
            emacs.type("X")
            emacs.until("value = value =  # scriptedX")
        finally:
            server.resume()
        emacs.until(lambda _: emacs.buffer() == SOURCE + "    value = value =  # scriptedX")
        assert emacs.complaints() == []


def test_the_mode_line_of_emacs_says_so_while_the_gateway_is_away(tmp_path):
    kind = available(Emacs)
    with gateway(tmp_path) as served, kind(tmp_path, SOURCE, server_command("--gateway", served.url)) as emacs:
        emacs.until_ready()
        served.kill()
        emacs.type("    value = 1\n")
        emacs.until("Foretype:degraded")
        assert emacs.buffer() == SOURCE + "    value = 1\n"
        assert emacs.complaints() == []
