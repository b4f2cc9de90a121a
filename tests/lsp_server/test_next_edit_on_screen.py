"""What of both is on the screen: an inline suggestion or a next edit."""

from foretype_lsp.next_edit.on_screen import OnScreen


def test_one_of_both_is_on_the_screen():
    screen = OnScreen()
    screen.inline_answered("a", 1, 5, found=True)
    assert screen.has_inline("a", 1, 5)
    assert not screen.has_inline("a", 2, 5) and not screen.has_inline("a", 1, 6) and not screen.has_inline("b", 1, 5)
    screen.inline_answered("a", 1, 5, found=False)
    assert not screen.has_inline("a", 1, 5)
    screen.next_edit_shown("a", 1, "n1")
    screen.next_edit_gone("n2")
    assert screen.has_next_edit("a", 1) and not screen.has_next_edit("a", 2)
    screen.next_edit_gone("n1")
    assert not screen.has_next_edit("a", 1)
