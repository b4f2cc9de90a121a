"""What got another value, or other parameters, with its name: another thing, of which nothing is followed."""

import re

import pytest
from context.typing_editor import Editor, changed
from foretype_context.syntax.document import Edit

_REDEFINED = {
    "a variable": ("javascript", "const original = [1, 2, 3];\nuse(original);\n", "original", "program", "[1, 2, 3]", "create()"),
    "a part of its value": ("python", "def f():\n    key = unikey(m)\n    return key\n", "key", "label", "unikey(m)", "m"),
    "a field": ("python", "class A:\n    def __init__(self):\n        self.lock = Lock()\n\n    def f(self):\n        return self.lock\n", "lock", "task", "Lock", "Task"),
    "what is opened": ("python", "def f():\n    with open_all() as nursery:\n        g(nursery)\n", "nursery", "group", "open_all", "Group"),
    "what is gone through": ("python", "def f(links):\n    for label in links:\n        g(label)\n", "label", "key", "in links", "in keys(links)"),
    "in Go": ("go", "package p\n\nfunc f() int {\n\tn := count()\n\treturn n\n}\n", "n", "size", "count()", "len(all)"),
    "in Rust": ("rust", "fn f() -> i32 {\n    let n = count();\n    n\n}\n", "n", "size", "count()", "total()"),
    "in Java": ("java", "class A {\n  int f() { int n = count(); return n; }\n}\n", "n", "size", "count()", "total()"),
    "a function with other parameters": ("python", "def _eval(node):\n    return node\n\n\ndef g():\n    return _eval(1)\n", "_eval", "_eval_node", "node", "node, text"),
}  # fmt: skip


@pytest.mark.parametrize("first", ["name", "value"])
@pytest.mark.parametrize("what", _REDEFINED)
def test_what_has_got_another_value_as_well_is_another_thing(what: str, first: str) -> None:
    language, text, old, new, value, other = _REDEFINED[what]
    at = re.search(rf"\b{old}\b", text)
    editor = Editor(text, language)
    place = text.index(value)
    edits = [Edit(at.start(), at.end(), new), Edit(place, place + len(value), other)]
    changes = edits if first == "name" else edits[::-1]
    moved = len(changes[0].text) - (changes[0].end - changes[0].start)
    editor.change(changes[0])
    if first == "name":
        assert editor.next() is not None
    later = changes[1]
    editor.change(later if later.end <= changes[0].start else Edit(later.start + moved, later.end + moved, later.text))
    assert editor.next() is None


def test_a_value_that_was_changed_long_ago_or_with_its_name_is_no_other_thing() -> None:
    text = "def f():\n    key = unikey(m)\n    return key\n"
    editor = changed(text, "unikey(m)", "m.key()")
    editor.now_s += 100
    editor.replace("key", "label")
    assert editor.next() is not None
    editor = Editor("def f():\n    return 1\n")
    editor.change(Edit(9, 9, "    key = unikey(m)\n    use(key)\n"))
    editor.replace("key", "label")
    assert editor.next() is not None


def test_a_value_in_which_something_else_was_renamed_is_the_same() -> None:
    editor = changed("def f(depth):\n    level = depth\n    return level\n", "depth", "deep")
    editor.take(editor.next())
    editor.replace("level", "depth_now")
    one = editor.next()
    assert one is not None and one.edit.text == "depth_now"
