"""What editors of the terminal show and take alike, whoever draws it."""

import pytest
from e2e.lsp_support import SOURCE


class TerminalCases:
    """Each module that has them gives a fixture `editor`."""

    def test_ghost_text_is_shown_and_tab_puts_it_into_the_buffer(self, editor):
        before = editor.status()["counts"]["accepted"]
        editor.offered()
        assert editor.buffer() == SOURCE + "    value = "
        editor.taken()
        assert editor.buffer() == SOURCE + "    value = value =  # scripted"
        editor.until(lambda _: editor.status()["counts"]["accepted"] == before + 1)
        assert not any(editor.complaints())

    def test_a_word_and_a_line_are_accepted_by_themselves(self, editor):
        editor.offered()
        editor.press("M-Right")
        editor.until(lambda _: editor.buffer() == SOURCE + "    value = value")
        editor.until("value = value =  # scripted")
        editor.press("M-l")
        editor.until(lambda _: editor.buffer() == SOURCE + "    value = value =  # scripted")
        assert not any(editor.complaints())

    def test_before_closers_the_line_is_accepted_as_it_was_shown(self, editor):
        editor.new_line()
        editor.type("print()")
        editor.press("Left")
        editor.type("f")
        editor.until(lambda _: "# scripted" in editor.ghost())
        shown = next(line for line in editor.screen().splitlines() if line.startswith("print"))
        editor.taken()
        assert editor.buffer().splitlines()[3] == shown.rstrip()


class NeovimCases(TerminalCases):
    """The same of every version of Neovim, with a fixture `neovim` as well."""

    def test_what_was_typed_through_before_the_next_answer_is_not_left_behind(self, neovim):
        neovim.offered()
        neovim.type("val")  # before it is asked again
        neovim.taken()
        assert neovim.buffer() == SOURCE + "    value = value =  # scripted"

    def test_keys_that_come_with_tab_come_behind_what_it_accepts(self, neovim):
        neovim.offered()
        neovim.type("\tval")  # in one go: Neovim has them all before it does the first
        neovim.until(lambda _: neovim.buffer().endswith("val"))
        assert neovim.buffer() == SOURCE + "    value = value =  # scriptedval"

    @pytest.mark.parametrize("command", ["file", "saveas"])
    def test_a_file_under_another_name_gets_suggestions_still(self, neovim, command, tmp_path):
        neovim.goes_on_under_another_name(command, tmp_path / "other.py")

    def test_checkhealth_finds_nothing_wrong(self, neovim):
        neovim.type(":checkhealth foretype")
        neovim.press("Enter")
        screen = neovim.until("ready: scripted")
        assert "ERROR" not in screen
