"""The next edit of a document as a developer meets it: keys go in, at most one place comes out."""

from context.typing_editor import Editor, applied, changed
from foretype_context.edits.next_edit import SETTLED_S, Evidence
from foretype_context.syntax.document import Edit
from foretype_context.syntax.parsing import parse_bounded
from hypothesis import given
from hypothesis import strategies as st

RENAMED = "def area(width, height):\n    if width < 0:\n        return 0\n    return width * height\n"
LIKE = "def f(a, b, c):\n    print(a.x)\n    print(b.x)\n    print(c.x)\n    # print(c.x)\n    s = 'print(c.x)'\n"


def test_a_renamed_declaration_is_followed_from_place_to_place_and_then_there_is_silence() -> None:
    editor = changed(RENAMED, "width", "size")
    left = list[int]()
    cursor = 0
    while (one := editor.next(cursor)) is not None:
        assert one.evidence is Evidence.DECLARATION
        left.append(one.left)
        editor.take(one)
        cursor = one.edit.start
    assert left == [1, 0]
    assert editor.text == RENAMED.replace("width", "size")


def test_a_declaration_that_was_followed_once_by_hand_is_surer_than_one_that_was_not() -> None:
    text = "def area(width, height):\n    if width < 0:\n        return 0\n    return width * height * (width + 1)\n"
    editor = changed(text, "width", "size")
    one = editor.next()
    assert one is not None and one.evidence is Evidence.DECLARATION
    editor.replace("width", "size")
    found = editor.take_all()
    assert [one.evidence for one in found] == [Evidence.RENAME] * 2
    assert editor.text == text.replace("width", "size")


def test_whichever_of_the_two_comes_first_the_other_one_makes_it_sure() -> None:
    editor = changed("def area(width):\n    a(width)\n    b(width)\n", "(width)\n    b", "(size)\n    b")
    assert editor.next() is None
    editor.replace("width", "size")
    one = editor.next()
    assert one is not None and one.evidence is Evidence.RENAME


def test_the_nearest_place_below_comes_first_then_those_above() -> None:
    editor = changed("def f(width):\n    a(width)\n    b(width)\n    c(width)\n", "width", "size")
    one = editor.next(editor.text.index("b("))
    assert one is not None and one.edit.start == editor.text.index("width", editor.text.index("b("))
    editor.text = editor.text  # nothing was taken
    one = editor.next(len(editor.text))
    assert one is not None and one.edit.start == editor.text.rindex("width")


def test_while_somebody_types_nothing_is_said() -> None:
    editor = changed(RENAMED, "width", "size")
    assert editor.next(wait_s=SETTLED_S / 2) is None
    assert editor.next() is not None


def test_after_an_undo_nothing_is_said() -> None:
    editor = Editor(RENAMED)
    editor.change(Edit(9, 14, "size"))
    editor.change(Edit(9, 13, "width"))
    assert editor.text == RENAMED and editor.next() is None
    editor.change(Edit(9, 14, "size"))
    editor.change(Edit(len(editor.text), len(editor.text), "x"), pause_s=1)
    assert editor.next() is not None
    editor.change(Edit(len(editor.text) - 1, len(editor.text), ""))
    editor.change(Edit(9, 13, "width"))
    assert editor.text == RENAMED and editor.next() is None


def test_who_refuses_one_place_of_a_rename_is_shown_none_of_the_others() -> None:
    editor = changed(RENAMED, "width", "size")
    first = editor.next()
    assert first is not None and first.left
    editor.edits.refused(editor.text, first.edit)
    assert editor.next() is None
    editor.replace("height", "depth")
    one = editor.next()
    assert one is not None and one.edit.text == "depth"


def test_who_refuses_one_call_of_a_signature_is_shown_none_of_the_others() -> None:
    editor = changed("def f(a, b):\n    return 1\n\n\nf(1, 2)\nf(3, 4)\n", "a, b", "a")
    first = editor.next()
    assert first is not None and first.left
    editor.edits.refused(editor.text, first.edit)
    assert editor.next() is None


def test_the_same_rename_in_another_function_is_followed_there() -> None:
    text = "".join(f"def f{number}(width):\n    return width\n\n\n" for number in range(3))
    editor = Editor(text)
    for number in range(3):
        editor.replace("width):", "size):")
        wanted = Evidence.RENAME if number else Evidence.DECLARATION  # whoever does it twice means it
        assert [one.evidence for one in editor.take_all() if one.evidence is not Evidence.LIKE_EDITS] == [wanted], (
            number
        )
    assert editor.text == text.replace("width", "size")
    editor = Editor(text)
    for _ in range(3):
        editor.replace("width):", "size):")
    editor.take_all()
    assert editor.text == text.replace("width", "size")


def test_what_was_refused_of_like_edits_is_not_offered_again_there() -> None:
    editor = Editor("print(a.x)\nprint(b.x)\nprint(c.x)\nprint(d.x)\n")
    for _ in range(2):
        editor.replace("print", "log")
    first = editor.next()
    editor.edits.refused(editor.text, first.edit)
    second = editor.next()
    assert second is not None and second.edit.start > first.edit.start


def test_a_rename_follows_its_declaration_when_lines_above_it_move() -> None:
    editor = changed(RENAMED, "width", "size")
    editor.change(Edit(0, 0, "import math\n"))
    one = editor.next()
    assert one is not None and editor.text[one.edit.start : one.edit.end] == "width"
    editor.replace("size", "extent")  # it was renamed once more: from the last name, which nobody else has
    assert editor.next() is None


def test_two_edits_that_are_alike_are_offered_where_code_is_the_same_and_not_in_text() -> None:
    editor = Editor(LIKE)
    editor.replace("print", "log", 0)
    assert editor.next() is None  # one example is none
    editor.replace("print", "log", 0)
    one = editor.next()
    assert one is not None and one.evidence is Evidence.LIKE_EDITS
    editor.take(one)
    assert editor.text == LIKE.replace("    print(", "    log(")
    assert editor.next() is None


def test_examples_in_comments_are_followed_in_comments() -> None:
    editor = Editor("# see a.old\n# see b.old\n# see c.old\n")
    for _ in range(2):
        editor.replace("old", "new")
    one = editor.next()
    assert one is not None and one.edit.start == editor.text.index("old")


def test_what_would_not_parse_is_not_offered() -> None:
    editor = Editor("f(a.x)\nf(b.x)\nf(c.x)\n")
    for line in range(2):
        editor.replace(".x", ".x.y", line)
    one = editor.next()
    assert one is not None
    source = editor.text.encode()
    tree = parse_bounded(source, "python")
    said = editor.edits.next(editor.text, tree.root_node, source, 0, editor.now_s + 1, lambda _: False)
    assert said is None


def test_a_template_that_fits_everywhere_says_nothing() -> None:
    editor = Editor("".join(f"call(v{n}.old)\n" for n in range(40)))
    for _ in range(2):
        editor.replace(".old", ".new")
    assert editor.next() is None


_KEYS = st.lists(
    st.tuples(st.integers(0, 80), st.integers(0, 3), st.sampled_from(["", "x", "width", "\n", "(", " é"])), max_size=12
)


@given(_KEYS, st.sampled_from(["python", "javascript", "go", "ruby", "sql"]))
def test_any_keys_give_an_edit_of_the_text_or_nothing(keys: list[tuple[int, int, str]], language: str) -> None:
    editor = Editor(RENAMED, language)
    for at, length, text in keys:
        start = min(at, len(editor.text))
        editor.change(Edit(start, min(start + length, len(editor.text)), text))
        source = editor.text.encode()
        tree = parse_bounded(source, language)
        if tree is None:
            continue
        one = editor.edits.next(editor.text, tree.root_node, source, start, editor.now_s + 1, lambda _: True)
        assert one is None or 0 <= one.edit.start <= one.edit.end <= len(editor.text)
        assert one is None or one.jump_only or applied(editor.text, one.edit) != editor.text
