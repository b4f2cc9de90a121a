import pytest
from foretype_lsp.documents.cells import CellKind, kind_of, masked, shown, without_headers
from hypothesis import given
from hypothesis import strategies as st

PYTHON_LINES = [
    "x = 1",
    "    return a % b",
    "% b",
    "!= c",
    "x %= 3",
    'print("%s" % name)',
    'f"{a!r}"',
    "a = b == c",
    "def f(x): # why?",
    "",
    "\t",
]
MAGIC_LINES = {
    "%matplotlib inline": "#matplotlib inline",
    "    %timeit f()": "    #timeit f()",
    "%%time": "#%time",
    "!pip install x": "#pip install x",
    "!!ls": "#!ls",
    "files = !ls *.py": "files = #ls *.py",
    "t = %timeit -o f()": "t = #timeit -o f()",
    "a, b = %magic": "a, b = #magic",
    "?print": "#print",
    "??print": "#?print",
    "print?": "#rint?",
    "np.array??": "#p.array??",
}


@pytest.mark.parametrize("line", PYTHON_LINES)
def test_what_python_understands_stands_as_it_is(line):
    assert shown(line, CellKind.CODE, "python") == line
    assert not masked(line, "python")


@pytest.mark.parametrize("line", MAGIC_LINES)
def test_what_ipython_alone_understands_is_a_comment_as_long_as_it_was(line):
    assert masked(line, "python")
    assert shown(line, CellKind.CODE, "python") == MAGIC_LINES[line]
    assert not masked(line, "julia") and shown(line, CellKind.CODE, "julia") == line


@given(
    st.lists(st.sampled_from([*PYTHON_LINES, *MAGIC_LINES, "é😀?", "\ud83d"])), st.sampled_from(["\n", "\r\n", "\r"])
)
def test_no_line_of_code_changes_its_length_or_place(lines, end):
    text = end.join(lines)
    made = shown(text, CellKind.CODE, "python")
    assert len(made) == len(text)
    assert [i for i, char in enumerate(made) if char in "\r\n"] == [i for i, char in enumerate(text) if char in "\r\n"]


@pytest.mark.parametrize(
    ("text", "language", "markup", "kind"),
    [
        ("x = 1", "python", False, CellKind.CODE),
        ("# Title", "markdown", True, CellKind.MARKUP),
        ("SELECT 1", "sql", False, CellKind.LANGUAGE),
        ("%%bash\nls", "python", False, CellKind.MAGIC),
        ("\n  %%html\n<b>", "python", False, CellKind.MAGIC),
        ("%%writefile a.py\nx = 1", "python", False, CellKind.MAGIC),
        ("%%time\nf()", "python", False, CellKind.CODE),
        ("%%timeit -n 3\nf()", "python", False, CellKind.CODE),
        ("x\n%%bash", "python", False, CellKind.CODE),
    ],
)
def test_what_a_cell_is(text, language, markup, kind):
    assert kind_of(text, language, notebook_language="python", markup=markup) is kind


@pytest.mark.parametrize(("language", "comment"), [("python", "# "), ("javascript", "// "), ("julia", "# ")])
def test_what_is_no_code_of_the_notebook_is_a_comment(language, comment):
    assert shown("a\n\nb", CellKind.MARKUP, language) == f"{comment}a\n{comment}\n{comment}b"


@pytest.mark.parametrize(
    ("suggestion", "before", "kept"),
    [
        ("a + b", "x = ", "a + b"),
        ("a\nb\n", "", "a\nb\n"),
        ("a\n# %%\nb", "", "a"),
        ("a\n\n\n# %% [markdown]\n# text", "", "a"),
        ("# %%\nb", "", ""),
        ("%\nb", "# %", ""),
        ("a\n# %", "", "a"),
        ("a\n# not %% a header", "", "a\n# not %% a header"),
        ("a  # %%", "x = ", "a  # %%"),
        ("a\n#", "", "a\n#"),
        ("a\n    # %%\nb", "", "a"),
    ],
)
def test_a_suggestion_ends_where_the_next_cell_would_begin(suggestion, before, kept):
    assert without_headers(suggestion, before, "python") == kept
    in_javascript = (text.replace("#", "//") for text in (suggestion, before, kept))
    suggestion, before, kept = in_javascript
    assert without_headers(suggestion, before, "javascript") == kept


def test_long_lines_are_looked_at_in_linear_time():
    for line in ("a " * 200_000, " " * 400_000, "a," * 200_000 + "=", "?" * 400_000):
        masked(line, "python")
