"""What a developer did in one place is one replacement; what was not typed is known as such."""

import pytest
from foretype_context.edits.bursts import Burst, Bursts, ChangeOrigin
from foretype_context.syntax.document import Edit
from hypothesis import given
from hypothesis import strategies as st


class World:
    """A text that is edited, and the bursts that ended."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.bursts = Bursts(text)
        self.ended: list[Burst] = []
        self.now_s = 0.0

    def change(self, *edits: Edit, accepted: bool = False) -> None:
        for start, end, text in edits:
            self.text = self.text[:start] + text + self.text[end:]
        self.now_s += 0.1
        ended = self.bursts.changed(edits, self.text, self.now_s, accepted=accepted)
        if ended is not None:
            self.ended.append(ended)

    def type(self, at: int, text: str) -> None:
        for offset, character in enumerate(text):
            self.change(Edit(at + offset, at + offset, character))

    def delete(self, at: int, characters: int) -> None:
        for _ in range(characters):
            at -= 1
            self.change(Edit(at, at + 1, ""))


def test_keys_in_one_place_are_one_replacement_as_short_as_it_can_be() -> None:
    world = World("def area(width):\n    return width\n")
    world.delete(14, 5)
    world.type(9, "size")
    burst = world.bursts.open
    assert burst is not None and not world.ended
    assert burst.edit == Edit(9, 14, "size") and burst.how is ChangeOrigin.TYPED
    assert burst.before == "def area(width):\n    return width\n"
    assert burst.ended_s == pytest.approx(0.9)


def test_a_key_elsewhere_ends_it() -> None:
    world = World("one\ntwo\n")
    world.type(3, "s")
    world.type(8, "s")
    assert [burst.edit for burst in world.ended] == [Edit(3, 3, "s")]
    assert world.bursts.open is not None and world.bursts.open.edit == Edit(8, 8, "s")
    assert world.bursts.end() is not None and world.bursts.open is None


def test_what_comes_to_nothing_is_no_burst() -> None:
    world = World("one\n")
    world.type(3, "x")
    world.delete(4, 1)
    assert world.bursts.open is None and not world.ended


def test_undo_and_redo_are_no_evidence() -> None:
    world = World("value = 1\n")
    world.change(Edit(0, 5, "count"))
    world.change(Edit(8, 9, "2"))
    world.change(Edit(8, 9, "1"))  # undo of what is open: it came to nothing
    assert world.bursts.open is None and not world.bursts.undone
    world.change(Edit(0, 5, "value"))  # undo of what is over
    assert world.bursts.open is None and world.bursts.undone
    world.change(Edit(0, 5, "count"))  # redo
    assert world.bursts.open is None and world.bursts.undone
    world.change(Edit(0, 5, "total"))
    assert world.bursts.open is not None and not world.bursts.undone
    assert [burst.edit.text for burst in world.ended] == ["count"]


def test_what_is_deleted_and_typed_again_is_no_undo() -> None:
    world = World("f(a.x)\n")
    world.delete(5, 2)
    world.type(3, ".x.y")
    assert world.bursts.open is not None and world.bursts.open.edit == Edit(5, 5, ".y")


@pytest.mark.parametrize(
    ("edits", "accepted", "how"),
    [
        ([Edit(0, 0, "a line\nand another\n")], False, ChangeOrigin.PASTED),
        ([Edit(0, 0, "x" * 50)], False, ChangeOrigin.PASTED),
        ([Edit(0, 0, "x" * 50)], True, ChangeOrigin.ACCEPTED),
        ([Edit(0, 1, "b"), Edit(2, 3, "d"), Edit(4, 5, "f")], False, ChangeOrigin.FORMATTED),
        ([Edit(1, 2, "  "), Edit(4, 4, " ")], False, ChangeOrigin.FORMATTED),
        ([Edit(3, 3, "\n    ")], False, ChangeOrigin.TYPED),  # Enter, with the indentation that the editor adds
        ([Edit(2, 3, "y")], False, ChangeOrigin.TYPED),
    ],
)
def test_what_was_not_typed_is_known(edits: list[Edit], accepted: bool, how: ChangeOrigin) -> None:
    world = World("a b c d e f\n")
    world.change(*edits, accepted=accepted)
    burst = world.bursts.open
    assert burst is not None and burst.how is how


def test_what_was_accepted_and_what_is_typed_behind_it_are_two() -> None:
    world = World("x = \n")
    world.change(Edit(4, 4, "compute()"), accepted=True)
    world.type(13, " + 1")
    assert [burst.how for burst in world.ended] == [ChangeOrigin.ACCEPTED]
    assert world.bursts.open is not None and world.bursts.open.edit.text == " + 1"


_EDITS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 6), st.text("ab \n", max_size=4)), max_size=20)


@given(st.text("abc \n", max_size=40), _EDITS)
def test_bursts_one_after_the_other_make_the_text_what_it_is(text: str, changes: list[tuple[int, int, str]]) -> None:
    world = World(text)
    for at, length, new in changes:
        start = min(at, len(world.text))
        world.change(Edit(start, min(start + length, len(world.text)), new))
        burst = world.bursts.open
        for one in (*world.ended, *([burst] if burst else [])):
            start, end, new = one.edit
            assert one.before[:start] + new + one.before[end:] == one.after
        assert burst is None or burst.after == world.text
