"""Brackets and quotes where nobody knows the language: no closer twice, a block ends at its brace, and prose stays as it is."""

import pytest
from context.test_finish import at
from foretype_context.finish.post_processing import finish
from foretype_context.syntax.blocks import suggestion_kind
from foretype_context.syntax.document import Document
from foretype_context.syntax.languages import LANGUAGES
from foretype_context.syntax.plain_reading import PlainLine, PlainReading, is_plain
from hypothesis import given
from hypothesis import strategies as st


def written(language: str, marked: str, text: str) -> str:
    """The document with what is shown, the cursor behind it."""
    _, offset = at(marked)
    snapshot = Document("u", marked.replace("|", "", 1), language=language).snapshot()
    shown = finish(text, snapshot, offset, kind=suggestion_kind(snapshot, offset), final=True)
    return f"{snapshot.text[:offset]}{shown.text}|{snapshot.text[offset + shown.replaces :]}"


@pytest.mark.parametrize(
    ("language", "marked", "text", "right"),
    [
        ("kotlin", "println(|)", '"hi")', 'println("hi"|)'),
        ("html", "<script>\nfoo(|)\n</script>", "a, b);", "<script>\nfoo(a, b);|\n</script>"),
        ("html", "<style>\na { b: rgba(|) }\n</style>", "1, 2)", "<style>\na { b: rgba(1, 2|) }\n</style>"),
        ("markdown", "See [it](|)", "https://a.b/c)", "See [it](https://a.b/c|)"),
        ("markdown", "See [it](|)", "https://a.b/c) for", "See [it](https://a.b/c) for|"),
        ("markdown", "See [|](https://a.b)", "it](https://c.d)", "See [it|](https://a.b)"),
        ("markdown", "- [|]", "x] do it", "- [x] do it|"),
        ("markdown", "Do `|`", "make run`", "Do `make run|`"),
        ("markdown", "Do `|`", "make run` first", "Do `make run` first|"),
        ("yaml", 'a: "|"', 'b"', 'a: "b|"'),
        ("yaml", 'a: ["|"]', 'b", "c"]', 'a: ["b", "c|"]'),
        ("toml", "a = [|]", "1, 2]", "a = [1, 2|]"),
        ("sql", "INSERT INTO t VALUES (|);", "1, 'a');", "INSERT INTO t VALUES (1, 'a'|);"),
        ("sql", "SELECT '|'", "abc'", "SELECT 'abc|'"),
        ("dart", "f(|);", "a, b)", "f(a, b|);"),
        ("swift", 'print("a \\(|)")', 'x)")', 'print("a \\(x|)")'),
        ("kotlin", 'val a = "b ${f(|)}"', "c)", 'val a = "b ${f(c|)}"'),
        ("vue", '<a @click="f(|)">', "b)", '<a @click="f(b|)">'),
        ("latex", "\\emph{|}", "word}", "\\emph{word|}"),
        ("makefile", "A = $(|)", "CC)", "A = $(CC|)"),
        ("dockerfile", 'CMD ["|"]', 'run"]', 'CMD ["run|"]'),
        ("kotlin", "f(g(|)", "x))", "f(g(x)|)"),
        ("kotlin", "f(g(|))", "x)", "f(g(x|))"),
        ("kotlin", "f(|)", "a) + g(b)", "f(a) + g(b|)"),
        ("kotlin", "f(|)", ")", "f(|)"),
    ],
)  # fmt: skip
def test_what_closes_the_line_is_not_said_twice(language: str, marked: str, text: str, right: str) -> None:
    assert written(language, marked, text) == right


@pytest.mark.parametrize(
    ("language", "marked", "text"),
    [
        ("kotlin", "f(|)", "g(a)"),
        ("kotlin", "f(|)", "g("),
        ("kotlin", "f((a|)", "b)"),
        ("kotlin", "f(\n    x|\n)", ")"),
        ("yaml", 'a: ["|"]', 'b", "c'),
        ("markdown", "|", "a) the first"),
        ("markdown", "(see |)", "a) the first"),
        ("markdown", "(see |)", "a) the first, b) the second"),
        ("markdown", "It's (|)", "don't"),
        ("markdown", "It's '|'", "don't"),
        ("markdown", "The notes (|", "see a) first)"),
        ("git-commit", "fix: it\n\n|", "a) one"),
        ("plaintext", "(|", "12) :)"),
        ("lisp", "(f 'a (g 'b|", "))"),
    ],
)
def test_what_closes_nothing_of_the_line_stays(language: str, marked: str, text: str) -> None:
    assert written(language, marked, text) == marked.replace("|", f"{text}|")


@pytest.mark.parametrize(
    ("language", "marked", "text", "kept"),
    [
        ("kotlin", "fun f() {|\n", "\n    return 1\n}\n\nfun g() {\n    return 2\n}\n", "\n    return 1\n}"),
        ("kotlin", "class A {\n    fun f() {|\n}\n", "\n        g()\n    }\n\n    fun h() {\n    }\n", "\n        g()\n    }"),
        ("kotlin", "fun f() {|\n", "\n    a(\"}\")\n    b('{') // don't :(\n}\nc()\n", "\n    a(\"}\")\n    b('{') // don't :(\n}"),
        ("kotlin", "if (x) {|\n", "\n    a()\n} else {\n    b()\n}\nc()\n", "\n    a()\n} else {\n    b()\n}"),
        ("kotlin", "x.map {|\n", "\n    a()\n}.filter {\n    b()\n}\nc()\n", "\n    a()\n}.filter {\n    b()\n}"),
        ("dart", "f(() {|\n", "\n  a();\n});\nb();\n", "\n  a();\n});"),
        ("html", "<script>\nfunction f() {|\n</script>\n", "\n  return `${1}`;\n}\nfunction g() {\n}\n", "\n  return `${1}`;\n}"),
        ("css", ".a {|\n", "\n  color: red;\n}\n.b {\n}\n", "\n  color: red;\n}"),
        ("scss", ".a {|\n", "\n  &:hover {\n    --x: $y;\n  }\n}\n.b {\n}\n", "\n  &:hover {\n    --x: $y;\n  }\n}"),
        ("html", "<style>\n.a {|\n</style>\n", "\n  color: red;\n}\n.b {\n}\n", "\n  color: red;\n}"),
        ("kotlin", "x.map {|\n", "\n    a()\n}\n.filter { b }\nc()\n", "\n    a()\n}\n.filter { b }"),
        ("dart", "f(() {|\n", "\n  a();\n})\n.then(b);\nc();\n", "\n  a();\n})\n.then(b);"),
        ("typescript", "type A = {|\n", "\n  a: string;\n}\n& B;\nc();\n", "\n  a: string;\n}\n& B;"),
        ("kotlin", "if (x) {|\n}\n", "\n    a()\n}\nb()\n", "\n    a()"),
    ],
)  # fmt: skip
def test_a_block_in_braces_ends_with_them(language: str, marked: str, text: str, kept: str) -> None:
    assert written(language, marked, text) == marked.replace("|", f"{kept}|")


def test_languages_with_brackets_of_their_own_are_not_read_so() -> None:
    assert not any(is_plain(language) for language in [*LANGUAGES, "json", "css"] if language != "plaintext")
    assert all(is_plain(language) for language in ("plaintext", "markdown", "kotlin", "html", "yaml"))


@given(st.text(alphabet="a ()[]{}\"'`\\\n", max_size=60))
def test_pairs_are_pairs(text: str) -> None:
    reading = PlainReading()
    reading.read(text, 0, len(text))
    assert all(text[opener] + text[at] in ("()", "[]", "{}", '""', "''", "``") for at, opener in reading.pairs.items())
    assert not {*reading.pairs, *reading.pairs.values()} & set(reading.strays)
    assert len({*reading.pairs.values()}) == len(reading.pairs)


def test_a_file_of_one_line_costs_the_line_around_the_cursor() -> None:
    line = PlainLine("'a " * 1_000_000 + "(", ")" + " 'b" * 1_000_000)
    assert (line.doubled("x)"), line.doubled("x"), line.closers("x)")) == (1, 0, [1])
