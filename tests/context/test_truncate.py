"""Generated text ends where the grammar says that its block does."""

import pytest
from foretype_context.finish.post_processing import finish
from foretype_context.finish.truncate import block_end, within_block
from foretype_context.prompt.windows import View
from foretype_context.syntax.blocks import SuggestionKind, suggestion_kind
from foretype_context.syntax.document import Document
from foretype_context.syntax.languages import LANGUAGES, language_spec
from foretype_context.syntax.reading import Reading, missing_closers, start_state
from hypothesis import given, settings
from hypothesis import strategies as st

KEPT = [
    ("a.js", "function f(x) {|\n", "\nreturn x;\n}\nnext(1);\n", "\nreturn x;\n}"),
    ("a.js", "function f(x) {|\n", "\n  if (x) { go(); }\n  return {\n", None),
    ("a.ts", "class A {\n  f(): void {|\n", "\n  go();\n  }\n  g() {}\n", "\n  go();\n  }"),
    ("a.go", "package a\n\nfunc f() {\n\tx := 1\n\t|\n", "return x }\nfunc g() {}", "return x }"),
    ("a.rs", "fn f() -> u8 {|\n", "\n1 }\nfn g() {}\n", "\n1 }"),
    ("A.java", "class A {\n  int f() {|\n", "\n return 1; }\n int g;\n", "\n return 1; }"),
    ("a.c", "int f(void) {|\n", '\nputs("}{"); }\nint g;\n', '\nputs("}{"); }'),
    ("a.cpp", "struct A {\n  int f() {|\n", "\n return 1; }\n int g;\n", "\n return 1; }"),
    ("a.cs", "class A {\n  int F() {|\n", "\n return 1; }\n int g;\n", "\n return 1; }"),
    ("a.rb", "def f(x)|\n", "\nx\nend\nputs 1\n", "\nx\nend"),
    ("a.lua", "local function f(x)|\n", "\nreturn x\nend\nprint(1)\n", "\nreturn x\nend"),
    ("a.php", "<?php\nfunction f() {|\n", "\nreturn 1; }\n$x = 2;\n", "\nreturn 1; }"),
    ("a.sh", "f() {|\n", "\ngo\n}\nf 1\n", "\ngo\n}"),
    ("a.py", "def f(x):\n    y = x\n    |\n", "return (y,\n  1)\nprint(2)\n", "return (y,\n  1)"),
    ("a.tsx", "const f = (x: string) => {|\n", "\nreturn <b>{x}</b>;\n}\ngo();\n", "\nreturn <b>{x}</b>;\n}"),
    ("a.js", "go();|\n", "\nstop();\n", None),
    ("a.txt", "f {|\n", "\n}\n", None),
]


def cut(path: str, marked: str, text: str) -> str | None:
    at = marked.index("|")
    snapshot = Document("u", marked.replace("|", ""), path=path).snapshot()
    end = block_end(snapshot, at, text)
    lines = (text if end is None else text[:end]).split("\n")
    view = View.at(snapshot, at)
    kept = "\n".join(within_block(lines, view, language_spec(snapshot.language), opened=False)).rstrip()
    return None if kept == text.rstrip() else kept


@pytest.mark.parametrize(("path", "marked", "text", "kept"), KEPT)
def test_text_ends_with_its_block(path: str, marked: str, text: str, kept: str | None) -> None:
    assert cut(path, marked, text) == kept


@pytest.mark.parametrize(
    ("path", "marked", "text", "kept"),
    [
        ("a.sh", "if x; then|\n", "\n  a\nelse\n  b\nfi\nmore\n", "\n  a\nelse\n  b\nfi"),
        ("a.sh", "if x; then|\n", "\n  a\nelif y; then\n  b\nelse\n  c\nfi\n", None),
        ("a.sh", "f() {\n  if x; then|\n}\n", "\n    a\n  else\n    b\n  fi\n}\n", "\n    a\n  else\n    b\n  fi"),
        ("a.rb", "begin|\n", "\n  a\nrescue => e\n  b\nensure\n  c\nend\nd\n", "\n  a\nrescue => e\n  b\nensure\n  c\nend"),
        ("a.rb", "case x\nwhen 1 then|\n", "\n  a\nwhen 2\n  b\nelse\n  c\nend\nd\n", "\n  a\nwhen 2\n  b\nelse\n  c\nend"),
        ("a.rb", "case x\nin [a] then|\n", "\n  a\nin [a, b]\n  b\nend\nd\n", "\n  a\nin [a, b]\n  b\nend"),
        ("a.lua", "if x then|\n", "\n  a()\nelseif y then\n  b()\nelse\n  c()\nend\nd()\n", "\n  a()\nelseif y then\n  b()\nelse\n  c()\nend"),
        ("a.lua", "repeat|\n", "\n  a()\nuntil x\nb()\n", "\n  a()\nuntil x"),
        # Its end does not come, or something else does.
        ("a.sh", "if x; then|\n", "\n  a\nelif y; then\n  b\nelse\n  c\n", "\n  a"),
        ("a.rb", "begin|\n", "\n  a\nrescue\n  b\nc\nend\n", "\n  a"),
        # Its end stands below, or the branch itself.
        ("a.sh", "if x; then|\nfi\n", "\n  a\nelse\n  b\n", None),
        ("a.sh", "if x; then|\nfi\n", "\n  a\nelse\n", "\n  a"),
        ("a.sh", "if x; then|\nelse\n  c\nfi\n", "\n  a\nelse\n  b\nfi\n", "\n  a"),
        # Words that begin alike, and what no word ends.
        ("a.rb", "loop do|\n", "\n  a\nensured = 1\nend\n", "\n  a"),
        ("a.lua", "while x do|\n", "\n  a()\nend_time = 1\n", "\n  a()"),
        ("a.sh", "if x; then|\n", "\n  a\nfi\nmore\n", "\n  a\nfi"),
        ("a.py", "if x:|\n", "\n  a\nelse:\n  b\n", "\n  a"),
    ],
)  # fmt: skip
def test_a_block_goes_on_with_its_other_branches(path: str, marked: str, text: str, kept: str | None) -> None:
    assert cut(path, marked, text) == kept


@pytest.mark.parametrize(
    ("language", "marked", "text", "kept"),
    [
        ("yaml", "spec:\n  containers:|\n", "\n  - name: a\n    image: b\n", None),
        ("yaml", "spec:\n  containers:|\n", "\n  - a\n  - b\n  volumes: c\nx: 1\n", "\n  - a\n  - b"),
        ("yaml", "spec:\n  containers:\n|\n", "  - a\n  - b\n  volumes: c\n", "  - a\n  - b"),
        ("markdown", "Features:|\n", "\n\n- fast\n- small\n", None),
        ("markdown", "Features:\n|\n", "- fast\n- small\n\n## Other\n", "- fast\n- small"),
        ("git-commit", "it\n\nChanges:|\n", "\n\n1. a\n   more\n2. b\n\nText\n", "\n\n1. a\n   more\n2. b"),
        ("plaintext", "Dear all:|\n", "\n\nthe room is\nanother one.\n", None),
        # What stands deeper, further left, or is another item is as it was.
        ("yaml", "on:|\n", "\n  push:\n    x: 1\n  y: 2\nz: 3\n", "\n  push:\n    x: 1\n  y: 2"),
        ("yaml", "on:\n|\n", "  push:\n    x: 1\n  y: 2\nz: 3\n", "  push:\n    x: 1\n  y: 2"),
        ("yaml", "a:\n  b:|\n", "\nc: 1\n", ""),
        ("markdown", "- small:|\n", "\n- fast:\n", ""),
        ("swift", "default:|\n", "\n  push()\nlet x = 1\n", "\n  push()"),
        ("python", "if x:|\n", "\ny = 1\n", ""),
    ],
)
def test_where_no_indentation_is_known_a_block_stands_where_its_first_line_does(
    language: str, marked: str, text: str, kept: str | None
) -> None:
    at = marked.index("|")
    snapshot = Document("u", marked.replace("|", ""), language=language).snapshot()
    shown = finish(text, snapshot, at, kind=suggestion_kind(snapshot, at), final=True).text
    assert shown == (text.rstrip() if kept is None else kept)


@pytest.mark.parametrize(
    ("marked", "text", "shown"),
    [
        ("spec:\n  conta|\n", "iners:\n  - a\n  - b\n  volumes: c\n", "iners:\n  - a\n  - b"),
        ("spec:\n  conta|\n", "iners:\n  volumes: c\n", "iners:"),
    ],
)
def test_a_line_that_comes_to_open_a_block_has_the_list_below_it_and_no_sibling(
    marked: str, text: str, shown: str
) -> None:
    at = marked.index("|")
    snapshot = Document("u", marked.replace("|", ""), language="yaml").snapshot()
    assert finish(text, snapshot, at, kind=SuggestionKind.OPENED, final=True).text == shown


def test_a_branch_that_is_still_coming_is_shown_with_its_end() -> None:
    snapshot = Document("u", "if x; then\n", path="a.sh").snapshot()
    shown = [
        finish(text, snapshot, 10, kind=SuggestionKind.BLOCK, final=False).text
        for text in ("\n  a\nel", "\n  a\nelse\n  b\n", "\n  a\nelse\n  b\nfi\n", "\n  a\nelse\n  b\nfi\nmore\n")
    ]
    assert shown == ["\n  a", "\n  a", "\n  a\nelse\n  b\nfi", "\n  a\nelse\n  b\nfi"]


def test_every_language_with_a_grammar_is_tried() -> None:
    tried = {Document("u", "", path=path).language for path, *_ in KEPT}
    assert tried >= {name for name, spec in LANGUAGES.items() if spec.wheel}


def test_what_follows_on_the_same_indentation_is_not_shown() -> None:
    marked = "function f(x) {|\n"
    at = marked.index("|")
    snapshot = Document("u", marked.replace("|", ""), path="a.js").snapshot()
    shown = finish("\n  return x; }\n  next(1);\n", snapshot, at, kind=SuggestionKind.BLOCK, final=True)
    assert shown.text == "\n  return x; }"


def test_text_that_ends_no_block_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    def parsed(*_: object) -> None:
        raise AssertionError("parsed")

    monkeypatch.setattr("foretype_context.finish.truncate.parse_in_steps", parsed)
    assert cut("a.js", "function f(x) {|\n", "\n  go(')'); }") is None
    assert cut("a.rb", "def f(x)|\n", "\n  if x\n    go\n") is None
    with pytest.raises(AssertionError, match="parsed"):
        cut("a.rb", "def f(x)|\n", "\n  go\nend")


@pytest.mark.parametrize(
    ("text", "language", "closers"),
    [
        ("f(a[{", "python", "}])"),
        ("x = '(", "python", "'"),
        ("f('a')", "python", ""),
        ("a) + (", "python", ")"),
        ("# (\n[", "python", "]"),
        ("`${", "javascript", "}`"),
        ("f(a // (", "javascript", "\n)"),
        ("x=$(cat <<EOF\n", "shellscript", "\nEOF)"),
        ("<a><b c='", "html", "'></a>"),
        ("f(", "markdown", ""),
    ],
)
def test_what_is_open_is_closed(text: str, language: str, closers: str) -> None:
    reading = Reading(language, start_state(language))
    reading.read(text, 0, len(text))
    assert missing_closers(reading.state.stack, reading.state.waiting) == closers


@settings(max_examples=150, deadline=None)
@given(
    st.text(alphabet="fx(){}[]'\"`\n :;#é🙂", max_size=40),
    st.text(alphabet="fx(){}[]'\"`\n :;#é🙂\r", max_size=60),
    st.sampled_from(["a.py", "a.js", "a.rb", "a.php", "a.sh", "a"]),
)
def test_any_text_is_cut_inside_itself_or_not_at_all(before: str, text: str, path: str) -> None:
    end = block_end(Document("u", before + "\n}\n", path=path).snapshot(), len(before), text)
    assert end is None or 0 <= end < len(text.rstrip()) or (before + text).rstrip() != before + text.rstrip()
