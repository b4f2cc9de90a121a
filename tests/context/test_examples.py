"""What one or two edits of somebody say of other places, and all that keeps us silent. Keys go in, a text comes out."""

import pytest
from context.typing_editor import Editor, changed
from foretype_context.edits.examples import Examples
from foretype_context.edits.next_edit import Evidence
from foretype_context.syntax.languages import LANGUAGES


def shown(editor: Editor) -> str:
    """The text when everything was taken."""
    editor.take_all()
    return editor.text


def test_a_statement_over_several_lines_is_followed_by_what_stands_around() -> None:
    text = "".join(f"send(\n    {name},\n    timeout,\n)\n" for name in "abc")
    editor = Editor(text)
    for _ in range(2):
        editor.replace("    timeout,", "    timeout=timeout,")
    assert shown(editor) == text.replace("timeout", "timeout=timeout")


def test_lines_that_were_put_in_are_indented_as_the_place_is() -> None:
    text = "def f():\n    a = get(1)\n\n\ndef g():\n    b = get(2)\n\n\ndef h():\n    if a:\n        c = get(3)\n"
    editor = Editor(text)
    for number in "12":
        editor.replace(f"get({number})", f"get(\n        {number},\n        deep=True,\n    )")
    assert shown(editor).endswith("        c = get(\n            3,\n            deep=True,\n        )\n")


_COMMON = {
    "python": ("old.call({x})\n", ""),
    "javascript": ("old.call({x});\n", ""),
    "typescript": ("old.call({x});\n", ""),
    "typescriptreact": ("old.call({x});\n", ""),
    "go": ("\told.call({x})\n", "package p\n\nfunc f() {\n"),
    "rust": ("    old.call({x});\n", "fn f() {\n"),
    "java": ("    old.call({x});\n", "class A { void f() {\n"),
    "c": ("    old->call({x});\n", "void f() {\n"),
    "cpp": ("    old.call({x});\n", "void f() {\n"),
    "csharp": ("    old.call({x});\n", "class A { void f() {\n"),
    "ruby": ("old.call({x})\n", ""),
    "php": ("$old->call({x});\n", "<?php\n"),
    "shellscript": ("old --call {x}\n", ""),
    "lua": ("old.call({x})\n", ""),
}


@pytest.mark.parametrize("language", sorted(_COMMON))
def test_two_like_edits_are_followed_in_every_language(language: str) -> None:
    line, head = _COMMON[language]
    end = "\n" + "}" * head.count("{") if head.endswith("{\n") else ""
    text = head + "".join(line.replace("{x}", str(number)) for number in (1, 2, 3)) + end
    editor = Editor(text, language)
    for _ in range(2):
        editor.replace("old", "fresh")
    one = editor.next()
    assert one is not None and one.evidence is Evidence.LIKE_EDITS
    assert shown(editor) == text.replace("old", "fresh")


def test_every_language_that_we_parse_is_among_them() -> None:
    assert set(_COMMON) == set(LANGUAGES) - {"plaintext"}


def test_an_edit_that_did_otherwise_speaks_against_the_two_that_did_alike() -> None:
    editor = changed("expect(a).ok(1)\nexpect(b).ok(2)\nexpect(c).ok(3)\nexpect(d).ok(4)\n", "expect(a)", "verify(a)")
    editor.replace("expect(b)", "check(b)")
    editor.replace("expect(c)", "check(c)")
    assert editor.next() is None


def test_two_edits_of_one_line_are_one_example() -> None:
    editor = changed("expect(a).ok(1)\nexpect(b).ok(2)\nexpect(c).ok(3)\n", "expect(a)", "check(a)")
    editor.replace(".ok(1)", ".is(1)")
    editor.replace("expect(b)", "check(b)")
    assert editor.next() is None  # the other half is to come
    editor.replace(".ok(2)", ".is(2)")
    assert shown(editor) == "check(a).is(1)\ncheck(b).is(2)\ncheck(c).is(3)\n"


def test_a_place_that_was_passed_by_speaks_against_all() -> None:
    editor = changed("".join(f"call({name}.old)\n" for name in "abcde"), "a.old", "a.new")
    editor.replace("c.old", "c.new")
    assert editor.next() is None


def test_a_declaration_is_not_parted_from_its_uses() -> None:
    one = "def f():\n    try:\n        a()\n    except E as e:\n        b({})\n\n\n"
    text = "".join(one.format(used) for used in ("", "", "e", ""))
    editor = Editor(text)
    for _ in range(2):
        editor.replace("except E as e:", "except E:")
    assert shown(editor) == "".join(
        one.format(used) if used else one.format(used).replace(" as e", "") for used in ("", "", "e", "")
    )


def test_a_name_is_not_put_where_nobody_knows_it() -> None:
    text = "def f(key):\n    put(a.x)\n    put(b.x)\n    put(c.x)\n\n\ndef g(other):\n    put(d.x)\n"
    editor = Editor(text)
    for name in "ab":
        editor.replace(f"{name}.x", f"{name}.x, key")
    assert shown(editor) == text.replace("a.x", "a.x, key").replace("b.x", "b.x, key").replace("c.x", "c.x, key")


def test_what_was_done_in_strings_stays_in_strings() -> None:
    editor = Editor("a = 'see x.old'\nb = 'see y.old'\nsee(z.old)\nc = 'see z.old'\n")
    for _ in range(2):
        editor.replace("old", "new")
    assert shown(editor).endswith("see(z.old)\nc = 'see z.new'\n")


def test_one_example_suffices_where_the_lines_around_are_the_same_too() -> None:
    part = "    begin()\n    log.info('start %s', name)\n    end()\n"
    text = f"def f():\n{part}\n\ndef g():\n{part}    # log.info('start %s', name)\n"
    editor = changed(text, "log.info", "log.debug")
    one = editor.next()
    assert one is not None and one.evidence is Evidence.ONE_EXAMPLE
    assert shown(editor) == text.replace("log.info", "log.debug", 2)


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        ("total = 1\nx(total)\n", "x(total)", "x(total, 1)"),  # no other line
        ("    return None\n", "None", "0"),
        ("def f():\n    total\n    total\n", "total", "sum_"),  # a bare word
        ("a = call(one, 1)\nb = call(one, 1)\n", "one, 1", "one, 2"),  # not the whole line
        ("begin()\ncall(one, 1)\nend()\nbegin()\ncall(one, 1)\nother()\n", "one, 1", "one, 2"),
        ("call(one, 1)\nif x:\n    z\n    call(one, 1)\n", "call(one, 1)", "y = call(one, 1)"),  # other neighbours
    ],
)
def test_one_example_says_nothing_of_what_is_merely_like_it(text: str, old: str, new: str) -> None:
    body = "def k():\n" + "".join(f"    {line}\n" for line in text.splitlines())
    editor = Editor(body)
    editor.replace(old, new)
    one = editor.next()
    assert one is None or one.evidence is not Evidence.ONE_EXAMPLE


def test_one_example_is_over_when_something_else_was_typed() -> None:
    editor = changed("log.info('start %s', name)\nlog.info('start %s', name)\nx = 1\n", "log.info", "log.debug")
    editor.replace("x = 1", "x = 2")
    assert editor.next() is None


def test_a_word_that_stands_very_often_is_not_looked_for() -> None:
    editor = Editor("x.old(a)\nx.old(b)\n" + "old\n" * 5_000)
    for _ in range(2):
        editor.replace("x.old", "x.new")
    assert editor.next() is None


def test_examples_are_forgotten() -> None:
    assert not vars(Examples("python"))["_examples"]
