"""What Neovim shows and takes in every version, whoever draws it: cases of test_neovim.py and test_neovim_old.py."""

import pytest
from e2e.lsp_support import SOURCE


class NeovimCases:
    """Each module that has them gives a fixture `neovim`."""

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

    def test_a_word_and_a_line_are_accepted_by_themselves(self, neovim):
        neovim.offered()
        neovim.press("M-Right")
        neovim.until(lambda _: neovim.buffer() == SOURCE + "    value = value")
        neovim.until("value = value =  # scripted")
        neovim.press("M-l")
        neovim.until(lambda _: neovim.buffer() == SOURCE + "    value = value =  # scripted")
        assert neovim.complaints() == [""]

    @pytest.mark.parametrize("command", ["file", "saveas"])
    def test_a_file_under_another_name_gets_suggestions_still(self, neovim, command, tmp_path):
        neovim.goes_on_under_another_name(command, tmp_path / "other.py")

    def test_checkhealth_finds_nothing_wrong(self, neovim):
        neovim.type(":checkhealth foretype")
        neovim.press("Enter")
        screen = neovim.until("ready: scripted")
        assert "ERROR" not in screen

    def test_before_closers_the_line_is_accepted_as_it_was_shown(self, neovim):
        neovim.press("G")
        neovim.type("oprint()")
        neovim.press("Left")
        neovim.type("f")
        neovim.until(lambda _: "# scripted" in neovim.ghost())
        shown = next(line for line in neovim.screen().splitlines() if line.startswith("print"))
        neovim.taken()
        assert neovim.buffer().splitlines()[3] == shown.rstrip()
