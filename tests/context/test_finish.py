from collections import Counter

import pytest
from context.tiny import SAMPLE
from foretype_context.finish.post_processing import Finished, finish
from foretype_context.finish.repetition import is_repetitive, without_repeated_lines
from foretype_context.finish.surroundings import Surroundings
from foretype_context.prompt.windows import View
from foretype_context.syntax.blocks import SuggestionKind, suggestion_kind
from foretype_context.syntax.document import Document, Snapshot
from hypothesis import given, settings
from hypothesis import strategies as st

LINE, BLOCK, MID = SuggestionKind.LINE, SuggestionKind.BLOCK, SuggestionKind.MID_LINE
OPENED = SuggestionKind.OPENED


def at(marked: str, path: str = "a.py") -> tuple[Snapshot, int]:
    """`|` marks the cursor."""
    offset = marked.index("|")
    return Document("u", marked[:offset] + marked[offset + 1 :], path=path).snapshot(), offset


def done(text: str, marked: str, kind: SuggestionKind = LINE, *, final: bool = True, path: str = "a.py") -> Finished:
    snapshot, offset = at(marked, path)
    return finish(text, snapshot, offset, kind=kind, final=final)


@pytest.mark.parametrize("text", ["", " ", "\n", "\t\n \n", "\r\n"])
@pytest.mark.parametrize("kind", [LINE, BLOCK, MID])
def test_nothing_blank_is_shown(text: str, kind: SuggestionKind) -> None:
    finished = done(text, "x = |\n", kind)
    assert (finished.text, finished.reason) == ("", "blank")


ROW = "True, True, True, True, True, True, True, True"
BELOW = "def f(x):\n    |\n    result = compute(x)\n    return result\n"
FUNCTION = "\n  return 1;\n}\n\nfunction b() {}"
STEPS = "\n    a = step(1)\n    b = step(2)"


@pytest.mark.parametrize(
    ("kind", "marked", "text", "shown"),
    [
        (LINE, "x = |\n", "compute(1)   \ny = 2\n", Finished("compute(1)")),  # a line ends at its end
        (LINE, "x = |\n", "\ud800\x00", "\ufffd\x00"),  # odd characters
        # A block ends where its indentation does.
        (BLOCK, "def f(x):|\n", "\n    y = x + 1\n    retu", "\n    y = x + 1\n    retu"),
        (BLOCK, "def f(x):|\n", "\n    return x\n\n\ndef g():\n    pass\n", "\n    return x"),
        (BLOCK, "def f(x):\n    |\n", "return x\n\nz = 1", "return x"),
        (BLOCK, "def f(x):\n    |\n", "if x:\n        return\n    y()\nz()", "if x:\n        return\n    y()"),
        # Lines that stand below already are not repeated, nor the line above.
        (BLOCK, BELOW, "y = 1\n    result = compute(x)\n    return result", "y = 1"),
        (BLOCK, BELOW, "result = compute(x)\n    return result", Finished("", 0, "repeats the line below")),
        (LINE, BELOW, "result = compute(x)", Finished("", 0, "repeats the line below")),
        (BLOCK, "if a:\n    |\n    else:\n        pass\n", "y = 1\n    else:\n        pass", "y = 1"),
        (LINE, "def f():\n    self.name = name\n    |\n", "self.name = name", Finished("", 0, "repeats the line above")),
        (BLOCK, "if a:\n    pass\nelse:\n    |\n", "pass", "pass"),
        # The rest of a line is not repeated in the middle: three characters of it are no accident, two may be.
        (MID, "x = | + other.total\n", "value + other.total", "value"),
        (MID, "x = |and b\n", "a", "a"),
        (MID, "x = |foo.bar()\n", "self.foo", "self."),
        (MID, "x = |fo.bar()\n", "self.fo", "self.fo"),
        (LINE, "f(x|)\n", ")", Finished("", 0, "closes only what is closed already")),
        (LINE, "x = [\n" + "    1,\n" * 400 + "    [2|\n]\n", "]]", "]"),  # opened far above
        # Running in circles is not shown, repeated lines once.
        (LINE, "|\n", "a = " + "b + " * 40, Finished("", 0, "repetitive")),
        (LINE, "x = [|\n", "0, 1, 2, 3, 4, 5, 6, 7, 8, 9]", "0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"),
        (BLOCK, "def f():|\n", f"{STEPS * 3}\n", STEPS),
        # Control tokens never show, except where the document speaks of them.
        (LINE, "x = |\n", "a<|fim_middle|>b", "a"),
        (LINE, "x = |\n", "a <EOT>b", "a"),
        (LINE, "x = |\nT = '<|fim_middle|>'\n", "'<|fim_middle|>'", "'<|fim_middle|>'"),
        # Line endings are those of the document.
        (BLOCK, "def f(x):|\r\ny = 1\r\n", "\n    a = x\n    return a\n", "\r\n    a = x\r\n    return a"),
        (BLOCK, "def f(x):|\ny = 1\n", "\r\n    a = x\r\n    return a", "\n    a = x\n    return a"),
        (BLOCK, "def f(x):|\ny = 1\n", "\r\r\n    a = x\r\n    return a", "\n    a = x\n    return a"),
    ],
)  # fmt: skip
def test_what_is_shown_of_a_text(kind: SuggestionKind, marked: str, text: str, shown: str | Finished) -> None:
    finished = done(text, marked, kind)
    assert finished == shown if isinstance(shown, Finished) else finished.text == shown


@pytest.mark.parametrize(
    ("kind", "marked", "text", "shown"),
    [
        (BLOCK, "def f(x):|\n", "\n    y = x + 1\n    retu", "\n    y = x + 1"),  # its last line is cut off
        (BLOCK, "def f(x):|\n", "\n    y", Finished("", 0, "no whole line yet")),
        (OPENED, "de|\n", "f g(x):\n    y = x\n    retu", "f g(x):\n    y = x"),
        (LINE, "x = [|]\n", ROW, Finished("", 0, "repetitive")),  # a row whose end has not come may be a loop
        (LINE, "x = [|]\n", f"{ROW}]", ROW),
    ],
)
def test_what_is_shown_while_more_is_coming(
    kind: SuggestionKind, marked: str, text: str, shown: str | Finished
) -> None:
    finished = done(text, marked, kind, final=False)
    assert finished == shown if isinstance(shown, Finished) else finished.text == shown


@pytest.mark.parametrize(("rest", "shown"), [("", "\n  return 1;\n}"), ("}\n", "\n  return 1;")])
def test_a_brace_that_closes_the_block_belongs_to_it_only_where_it_is_missing(rest: str, shown: str) -> None:
    assert done(FUNCTION, f"function a() {{|\n{rest}", BLOCK, path="a.js").text == shown


@pytest.mark.parametrize(
    ("text", "marked", "shown", "replaces"),
    [
        ("a, b)", "f(|)\n", "a, b", 0),
        ("x))", "foo(bar(|)\n", "x)", 0),
        ("x)", "foo(bar(|)\n", "x)", 0),
        ('hello")', 'print("|")\n', "hello", 0),
        ('hello"', 'print("|")\n', "hello", 0),
        ("a) + g(b)", "f(|)\n", "a) + g(b", 0),
        ("a) + b", "f(|)\n", "a) + b", 1),
        ("[0]", "x = y(z|)\n", "[0]", 0),
        ("x) -> int:", "def f(|):\n", "x) -> int:", 2),
        (")", "foo(|\n", ")", 0),
        ("1)\n", "foo(\n    |\n)\n", "1", 0),
        ("x]", "foo(|\n", "x", 0),
        ("x} ", "y = |\n", "x", 0),
        ("')'", "y = |\n", "')'", 0),
        ("1  # :)", "y = |\n", "1  # :)", 0),
    ],
)  # fmt: skip
def test_brackets_and_quotes_right_of_the_cursor(text: str, marked: str, shown: str, replaces: int) -> None:
    finished = done(text, marked)
    assert (finished.text, finished.replaces) == (shown, replaces)


@pytest.mark.parametrize(
    ("path", "marked", "text", "shown"),
    [
        ("a.py", "x = [|]\n", "True, True, True, True, True, True, True, True]", "True, True, True, True, True, True, True, True"),
        ("a.py", "f(|)\n", "None, None, None, None, None, None, None, None)", "None, None, None, None, None, None, None, None"),
        ("a.py", "f(|) + 1\n", "None, None, None, None, None, None, None, None)", "None, None, None, None, None, None, None, None"),
        ("a.py", "f(|)\n", "None, None, None, None, None, None, None, None", "None, None, None, None, None, None, None, None"),
        ("a.py", "x = [\n    |\n]\n", "1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5\n]", "1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5"),
        ("a.py", 'q = "|"\n', '%s, %s, %s, %s, %s, %s, %s"', "%s, %s, %s, %s, %s, %s, %s"),
        ("a.py", 'q = r"|"\n', '\\d\\d\\d\\d\\d\\d\\d\\d\\d\\d\\d\\d"', "\\d\\d\\d\\d\\d\\d\\d\\d\\d\\d\\d\\d"),
        ("a.c", "int a[] = {|};\n", "-1, -1, -1, -1, -1, -1, -1, -1, -1, -1};", "-1, -1, -1, -1, -1, -1, -1, -1, -1, -1"),
        ("a.c", "int a[] = {|};\n", "-1, -1, -1, -1, -1, -1, -1, -1, -1, -1", "-1, -1, -1, -1, -1, -1, -1, -1, -1, -1"),
        ("a.ts", "const a = `|`;\n", "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?", "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?"),
        # A loop, whatever stands behind it: too long, or nothing that ends it.
        ("a.py", "x = [|]\n", "a, " * 17, ""),
        ("a.py", "x = [|]\n", "0, " * 40, ""),
        ("a.py", "x = [|] + b\n", "a + " * 17, ""),
        ("a.py", "x = |'b'\n", "str, str, str, str, str, str, str, str, ", ""),
        ("a.py", "x = |, b\n", "a, a, a, a, a, a, a, a", ""),
        ("a.py", "f(|)\n", "str, str, str, str, str, str, str, 1, 1, 1", ""),
    ],
)  # fmt: skip
def test_a_row_that_ends_before_a_closer_that_is_there_is_no_loop(
    path: str, marked: str, text: str, shown: str
) -> None:
    assert done(text, marked, path=path).text == shown


@pytest.mark.parametrize(
    ("language", "marked", "text", "shown"),
    [
        ("markdown", "# T\n\nInstall:\n\n|\n", "```bash\npip install x\n```", "```bash\npip install x\n```"),
        ("markdown", "# T\n\n- Install:\n  |\n", "```bash\n  pip install x\n  ```", "```bash\n  pip install x\n  ```"),
        ("mdx", "# T\n\n|\n", "```js", "```js"),
        ("restructuredtext", "T\n=\n\n|\n", "```js", "```js"),
        ("plaintext", "T\n\n|\n", "```", "```"),
        # Talk, unless the document has a fence already.
        ("python", "x = 1\n|\n", "```python\ny = 2\n```", ""),
        ("python", "x = '```'\n|\n", "```python\ny = 2\n```", "```python"),
        ("yaml", "a:\n  |\n", "b: 1\n```\nThis sets b.", "b: 1"),
        ("kotlin", "fun f() {\n    |\n}\n", "g()\n```\nThis calls g.", "g()"),
    ],
)  # fmt: skip
def test_a_fence_is_the_documents_own_in_prose_alone(language: str, marked: str, text: str, shown: str) -> None:
    _, offset = at(marked)
    snapshot = Document("u", marked.replace("|", ""), language=language).snapshot()
    kind = suggestion_kind(snapshot, offset)
    assert finish(text, snapshot, offset, kind=kind, final=True).text == shown


ATOMS = [*"ab (){}[]:#\n\n\t\r\"'`\\é🙂,", "    ", "\r\n", "def f(x):\n    ", "<|fim_middle|>", "return x", "\x00"]
TEXT = st.lists(st.sampled_from(ATOMS), max_size=25).map("".join)


@settings(max_examples=300, deadline=None)
@given(
    TEXT,
    TEXT,
    TEXT,
    st.sampled_from(list(SuggestionKind)),
    st.booleans(),
    st.sampled_from(["a.py", "a.js", "a.rb", "x"]),
)
def test_whatever_is_finished_is_text_of_the_model_and_fits_the_document(
    before: str, after: str, text: str, kind: SuggestionKind, final: bool, path: str
) -> None:
    snapshot = Document("u", before + after, path=path).snapshot()
    finished = finish(text, snapshot, len(before), kind=kind, final=final)
    assert bool(finished.text.strip()) == bool(finished.text) == (finished.reason is None)
    assert 0 <= finished.replaces <= len(snapshot.line_text(snapshot.line_of(len(before))))
    # What the line has already is left out, and indentation is the file's; no sign is added.
    said = Counter(text)
    assert not Counter("".join(finished.text.split())) - said
    if kind not in (BLOCK, OPENED):
        assert "\n" not in finished.text


@settings(max_examples=200, deadline=None)
@given(TEXT, TEXT, TEXT)
def test_what_is_shown_adds_no_fault(before: str, after: str, text: str) -> None:
    snapshot = Document("u", before + after, path="a.py").snapshot()
    around = Surroundings(View.at(snapshot, len(before)))
    kept = around.without_faults(text)
    assert text.startswith(kept)
    assert around.faults(kept) <= around.faults("")


@pytest.mark.parametrize(
    "text",
    [
        ", str, str, str, str, str, str, 1, 1, 1",
        "1.0.0.000000000000000",
        "core/test__all__all__all__all__ = self",
        "name_factory_color_factory_color_factory_color_factory_color",
        "x, x, x, x, x, x, x, x",
    ],
)
def test_a_short_cycle_is_noticed_wherever_it_stands(text: str) -> None:
    assert is_repetitive(text)


@pytest.mark.parametrize("text", ["x = [1, 2, 3, 4, 5, 6, 7, 8]", "# " + "-" * 60, "self.a, self.b, self.c = a, b, c"])
def test_lists_and_rulers_are_not_cycles(text: str) -> None:
    assert not is_repetitive(text)


def test_real_code_is_not_repetitive() -> None:
    assert not any(is_repetitive(text) for text in SAMPLE)
    assert without_repeated_lines(["a", "b", "b", "c"]) == ["a", "b", "b", "c"]
    assert without_repeated_lines(["", "", "", "a"]) == ["", "", "", "a"]


@pytest.mark.parametrize(
    ("text", "marked", "path", "shown"),
    [
        ("f g(x):\n    return x\n\ny = 1\n", "de|\n", "a.py", "f g(x):\n    return x"),
        ("le x:\n        x -= 1\n    return x\n", "def f(x):\n    whi|\n", "a.py", "le x:\n        x -= 1"),
        ("le (x) {\n    x--;\n}\nf();\n", "whi|\n", "a.js", "le (x) {\n    x--;\n}"),
        # What follows stands no deeper: there is no block, only its first line.
        ("le x:\n    return x\n", "def f(x):\n    whi|\n", "a.py", "le x:"),
        # The user has typed the line and stands in the block.
        (
            "x -= 1\n        y += 1\n    return x\n",
            "def f(x):\n    while x:\n        |\n",
            "a.py",
            "x -= 1\n        y += 1",
        ),
        # Something came to stand right of the cursor.
        ("g(x):\n    return x\n", "f(|)\n", "a.py", "g(x):"),
    ],
)
def test_a_line_that_opens_a_block_is_shown_with_that_block_alone(
    text: str, marked: str, path: str, shown: str
) -> None:
    assert done(text, marked, OPENED, path=path).text == shown


@pytest.mark.parametrize(
    ("path", "marked", "text", "shown", "replaces"),
    [
        ("a.py", "print(f|)\n", "oo, bar)  # x", "oo, bar)  # x", 1),
        ("a.py", "print(f|)\n", "oo, bar  # x", "oo, bar", 0),
        ("a.py", "print(f|)\n", "oo('#')  # y", "oo('#')", 0),
        ("a.py", "print(f|)\n", "oo('#')", "oo('#')", 0),
        ("a.go", "package a\n\nfunc f() {\n\tg(x|)\n}\n", "y)  // why", "y)  // why", 1),
        ("a.go", "package a\n\nfunc f() {\n\tg(x|)\n}\n", "y // why", "y", 0),
        ("a.go", "package a\n\nfunc f() {\n\tg(x|)\n}\n", "y /* why */", "y /* why */", 0),
        ("a.js", "f(a|);\n", "b); // c", "b); // c", 2),
        ("a.js", "f(a|);\n", "b // c", "b", 0),
        ("a.sh", "echo $(f|)\n", "oo # x", "oo", 0),
        ("a.js", "x = a /|b;\n", "/ why", "", 0),  # its sign begins left of the cursor
    ],
)
def test_the_rest_of_the_line_becomes_no_comment(path: str, marked: str, text: str, shown: str, replaces: int) -> None:
    """The bracket behind the cursor stood in the comment, and nothing closed the call."""
    snapshot, offset = at(marked, path)
    finished = finish(text, snapshot, offset, kind=MID, final=True)
    assert (finished.text, finished.replaces) == (shown, replaces)


def test_a_comment_begins_with_its_own_sign_alone() -> None:
    """What stands before it without a blank is code."""
    snapshot, offset = at("f(a|);\n", "a.js")
    around = Surroundings(View.at(snapshot, offset))
    assert [around.before_comment(text) for text in ("b);// c // d", "b); // c", "b)", "b /* c */")] == [
        "b);",
        "b);",
        None,
        None,
    ]
