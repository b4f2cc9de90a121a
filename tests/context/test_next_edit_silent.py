"""When nothing is said, whatever the evidence: bad input, and any keys at all. And what a key does in a file of 5,000 lines."""

import itertools
import sys

import pytest
from context.typing_editor import Editor, applied, changed, followed_in, parses_no_worse
from foretype_context.edits.offsets import byte_of, char_of
from foretype_context.edits.walking import OCCURRENCES_MAX
from foretype_context.syntax.document import Edit
from foretype_eval.latency.next_edit_bench import RETYPED, retyped
from hypothesis import given
from hypothesis import strategies as st


def typed(at: int, old: str, new: str) -> list[Edit]:
    deleted = [Edit(end - 1, end, "") for end in range(at + len(old), at, -1)]
    return deleted + [Edit(at + offset, at + offset, one) for offset, one in enumerate(new)]


def test_a_file_that_does_not_parse_is_followed_where_it_parses_no_worse() -> None:
    editor = changed(
        "def f(width):\n    x = (width +\n    return width\n\n\ndef g(width):\n    return width\n", "width", "size"
    )
    editor.take_all()
    assert editor.text.endswith("def g(width):\n    return width\n")
    assert "size" not in editor.text.split("def g")[1]


@pytest.mark.parametrize("count", [OCCURRENCES_MAX // 2, 10_000])
def test_ten_thousand_references_are_left_alone(count: int) -> None:
    editor = Editor("def f(a, b):\n    return a\n\n\n" + "f(1, 2)\n" * count)
    for edit in (*typed(6, "a, b", "a"),):
        editor.change(edit)
    assert (editor.next() is None) is (count > OCCURRENCES_MAX)
    editor = Editor("def f(a):\n    return a\n\n\n" + "f(1)\n" * count)
    editor.change(Edit(4, 5, "g"))
    one = editor.next()
    assert (one is None) is (count > OCCURRENCES_MAX) and (one is None or one.left == count - 1)


def test_pairs_of_utf_16_tabs_and_carriage_returns_move_nothing() -> None:
    text = "# 😀 grüße\r\ndef f(wide):\r\n\ts = '😀'; t = wide\r\n\treturn wide, '😀wide'\r\n"
    editor = changed(text, "wide", "w")
    editor.take_all()
    assert editor.text == text.replace("wide", "w").replace("😀w'", "😀wide'")
    for at in range(len(text)):
        byte = byte_of(text, at)
        assert char_of(text, text.encode(), byte) == at and byte == len(text[:at].encode())


def test_two_cursors_say_nothing() -> None:
    editor = Editor("def f(width):\n    g(width)\n    h(width)\n    return width\n")
    for character in "size":
        first, second = editor.text.index(")"), editor.text.index(")", 20)
        editor.change(Edit(second, second, character), Edit(first, first, character))
    assert editor.next() is None


def test_what_was_formatted_or_pasted_is_no_example() -> None:
    editor = Editor("x.old(a)\nx.old(b)\nx.old(c)\nx.old(d)\n")
    editor.change(Edit(2, 5, "new"), Edit(11, 14, "new"), Edit(20, 23, "new"))
    assert editor.next() is None
    editor.change(Edit(0, 0, "x.new(e)\nx.new(f)\n"))
    assert editor.next() is None


def test_nothing_comes_back_after_an_undo() -> None:
    editor = Editor("def f(a, b):\n    return 1\n\n\nf(1, 2)\n")
    editor.change(Edit(7, 10, ""))
    editor.change(Edit(len(editor.text), len(editor.text), "x\n"))
    assert editor.next() is not None
    editor.change(Edit(len(editor.text) - 2, len(editor.text), ""))
    editor.change(Edit(7, 7, ", b"))
    assert editor.next() is None


def test_a_name_among_the_tokens_of_an_attribute_of_rust_may_mean_anything() -> None:
    for attribute in ("#[cfg(width)]", '#[serde(with = "a", width)]', "#[derive(width", "#![allow(width)]"):
        editor = Editor(f"{attribute}\nfn f(width: i32) -> i32 {{\n    width\n}}\n", "rust")
        at = editor.text.index("(width:") + 1
        editor.change(Edit(at, at + 5, "size"))
        assert editor.next() is None


def test_a_field_that_becomes_private_and_the_object_itself_are_not_followed() -> None:
    text = "class A:\n    def __init__(self):\n        self.fs = 1\n\n    def f(self):\n        return self.fs\n"
    editor = changed(text, "fs", "_fs")
    assert editor.next() is None
    editor = changed(text.replace("fs", "_fs"), "_fs", "fs")
    assert editor.next() is not None
    editor = changed("def f(self):\n    return self\n", "self", "inline")
    assert editor.next() is None


def test_what_was_accepted_from_elsewhere_is_no_example() -> None:
    for accepted in (True, False):
        editor = Editor("x.old(a)\nx.old(b)\nx.old(c)\n")
        for line in range(2):
            at = editor.text.index("old", 9 * line)
            editor.change(Edit(at, at + 3, "new"), accepted=accepted)
        assert (editor.next() is None) is accepted


_TEXTS = {
    "python": "def f(a, b=1):\n    x.old(a)\n    x.old(b)\n    return f(a, b)\n\n\nclass A:\n    def g(self, a, b):\n        x.old(self.g(1, 2))\n",
    "javascript": "function f(a, b) {\n  x.old(a);\n  x.old(b);\n  return f(a, b);\n}\nclass A { g(a, b) { return this.g(1, 2); } }\n",
    "typescript": "function f(a: number, b?: string): void {\n  x.old(a);\n  x.old(b);\n  f(1, 'x');\n}\n",
    "go": "package p\n\nfunc f(a, b int) int {\n\tx.old(a)\n\tx.old(b)\n\treturn f(a, b)\n}\n",
    "java": "class A {\n  int f(int a, int b) { x.old(a); x.old(b); return f(a, b); }\n}\n",
    "rust": '#[derive(a, old)]\nfn f(a: i32, b: i32) -> i32 {\n    x.old(a);\n    x.old(b);\n    println!("{}", a);\n    f(a, b)\n}\n',
    "ruby": "def f(a, b)\n  x.old(a)\n  x.old(b)\n  f(a, b)\nend\n",
    "php": "<?php\nfunction f($a, $b) {\n  $x->old($a);\n  $x->old($b);\n  return f($a, $b);\n}\n",
}
_KEYS = st.lists(
    st.tuples(
        st.integers(0, 120),
        st.integers(0, 6),
        st.sampled_from(["", "a", "b", "new", ", c", "(", ")", "\n", "\r\n\t", "'", " 😀", "c, "]),
        st.booleans(),
    ),
    max_size=8,
)


@given(_KEYS, st.sampled_from(sorted(_TEXTS)))
def test_whatever_is_typed_what_is_offered_parses_no_worse(
    keys: list[tuple[int, int, str, bool]], language: str
) -> None:
    editor = Editor(_TEXTS[language], language)
    for at, length, text, takes in keys:
        start = min(at, len(editor.text))
        editor.change(Edit(start, min(start + length, len(editor.text)), text))
        one = editor.next(start)
        if one is None:
            continue
        assert 0 <= one.edit.start <= one.edit.end <= len(editor.text)
        if one.jump_only:
            assert one.edit.start == one.edit.end and not one.edit.text
            continue
        assert applied(editor.text, one.edit) != editor.text
        assert parses_no_worse(editor.text, one.edit, language)
        if takes:
            editor.take(one)
        followed_in(editor.elsewhere("pkg/a"), "pkg/b", _TEXTS[language], language)


@pytest.mark.parametrize("what", RETYPED)
def test_a_key_in_5_000_lines_is_followed_within_a_bounded_number_of_steps(what: str) -> None:
    """Calls and not milliseconds, which `foretype bench latency` tells (aim: 20): a machine may be as busy as it likes."""
    calls = itertools.count()
    sys.setprofile(lambda _frame, event, _arg: next(calls) if event in {"call", "c_call"} else None)
    try:
        answers = list(retyped(*RETYPED[what], clock=lambda: next(calls)))
    finally:
        sys.setprofile(None)
    assert answers[-1][0] is not None
    assert (
        max(counted for _, counted in answers) < 100_000
    )  # 8,000 to 63,000; each of 280 calls looked at from each would be millions
