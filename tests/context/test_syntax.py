from dataclasses import replace

import pytest
from foretype_context.syntax.blocks import (
    SuggestionKind,
    block_indent,
    code_above,
    in_comment_or_string,
    indent_columns,
    opens_block,
    stop_indent,
    suggestion_kind,
)
from foretype_context.syntax.document import Document, Snapshot
from foretype_context.syntax.languages import LANGUAGES, syntax_of
from tree_sitter import Query

LINE, BLOCK, MID = SuggestionKind.LINE, SuggestionKind.BLOCK, SuggestionKind.MID_LINE


def at(marked: str, path: str) -> tuple[Snapshot, int]:
    offset = marked.index("|")
    return Document("u", marked[:offset] + marked[offset + 1 :], path=path).snapshot(), offset


def without_tree(snapshot: Snapshot) -> Snapshot:
    """As for a document whose parse took too long."""
    return replace(snapshot, syntax=lambda _: None)


@pytest.mark.parametrize(
    ("marked", "kind"),
    [
        ("def f(x):|\n", BLOCK),
        ("def f(x):|\n    return x\n", LINE),
        ("class A:\n    def f(self):|\n\n    def g(self): ...\n", BLOCK),
        ("for x in y:  |\n", BLOCK),
        ("if a and b:|\n", BLOCK),
        ("def f(\n    a,\n    b,\n) -> int:|\n", BLOCK),
        ("def f(x):\n    |\n", BLOCK),
        ("def f(x):\n    a = 1\n|\n    return x\n", BLOCK),
        ("x = 1\n|\n", LINE),
        ("|", LINE),
        ("x = |\n", LINE),
        ("x = foo(|)\n", LINE),
        ("x = foo(|):\n", LINE),
        ("x = | + y\n", MID),
        ("x = {'a':|\n", LINE),
        ("x = y[1:|\n", LINE),
        ("x: |\n", LINE),
        ("f = lambda x:|\n", LINE),
        ("# if a:|\n", LINE),
        ("x = 'if a:|\n", LINE),
        ('def f():\n    """Say:|\n', LINE),
        ('def f():\n    """Say.\n    |\n    """\n', LINE),
        ("def f():\n    # note\n    |\n    pass\n", BLOCK),
    ],
)
def test_python_kinds(marked: str, kind: SuggestionKind) -> None:
    snapshot, offset = at(marked, "a.py")
    assert snapshot.syntax_at(offset) is not None
    assert suggestion_kind(snapshot, offset) is kind
    assert suggestion_kind(without_tree(snapshot), offset) is kind


@pytest.mark.parametrize(
    ("marked", "path", "kind"),
    [
        ("function f() {|\n}\n", "a.js", BLOCK),
        ("const s = '{|\n", "a.js", LINE),
        ("// if (a) {|\n", "a.ts", LINE),
        ("func f() {|\n", "a.go", BLOCK),
        ("fn f() {\n    |\n}\n", "a.rs", BLOCK),
        ("def f(x)\n  |\nend\n", "a.rb", BLOCK),
        ("if [ -f x ]; then|\n", "a.sh", BLOCK),
        ("x {|\n", "notes.unknown", BLOCK),
        ("int main() {|\n}\n", "a.c", BLOCK),
    ],
)
def test_kinds_of_other_languages(marked: str, path: str, kind: SuggestionKind) -> None:
    assert suggestion_kind(*at(marked, path)) is kind


def test_block_can_be_overruled_but_not_in_the_middle_of_a_line() -> None:
    snapshot, offset = at("x = |\n", "a.py")
    assert suggestion_kind(snapshot, offset, True) is BLOCK
    snapshot, offset = at("def f():|\n", "a.py")
    assert suggestion_kind(snapshot, offset, False) is LINE
    snapshot, offset = at("x = | + y\n", "a.py")
    assert suggestion_kind(snapshot, offset, True) is MID


@pytest.mark.parametrize(
    ("marked", "inside"),
    [
        ("x = 'a|b'\n", True),
        ("x = 'ab'|\n", False),
        ("x = |'ab'\n", False),
        ("# note|\n", True),
        ("x = 1  # no|te\n", True),
        ('"""Doc.\n|\n"""\n', True),
        ("x = f'{a.|}'\n", False),
        ("x = f'{a}|'\n", True),
        ("x = 1|\n", False),
    ],
)
def test_comments_and_strings_are_known(marked: str, inside: bool) -> None:
    snapshot, offset = at(marked, "a.py")
    assert in_comment_or_string(snapshot, offset) is inside
    if "{a.|}" not in marked:  # a scanner of quotes knows of no code inside a string
        assert in_comment_or_string(without_tree(snapshot), offset) is inside


def test_characters_before_the_place_may_be_wide() -> None:
    snapshot, offset = at("é = '🙂|漢'\n", "a.py")
    assert in_comment_or_string(snapshot, offset)
    assert not in_comment_or_string(snapshot, offset + 2)


@pytest.mark.parametrize(
    ("marked", "path", "block", "stop"),
    [
        ("def f():|\n", "a.py", 1, 1),
        ("    def f():|\n", "a.py", 5, 5),
        ("def f():\n        |\n", "a.py", 8, 8),
        ("def f():\n    a = 1\n|\n    b = 2\n", "a.py", 4, 4),
        ("def f():\n|\n", "a.py", 1, 1),
        ("def f():\n    pass\n|\nx = 1\n", "a.py", 0, 0),
        ("  function f() {|\n", "a.js", 3, 2),
        ("\tif x {|\n", "a.go", 5, 4),
        ("  a:|\n", "a.yaml", 3, 2),
        ("  a:\n|\n", "a.yaml", 3, 2),
        ("  a {\n|\n", "a.yaml", 3, 3),
        ("  a:\n|\n", "a.py", 3, 3),
    ],
)
def test_the_indentation_that_ends_a_block(marked: str, path: str, block: int, stop: int) -> None:
    snapshot, offset = at(marked, path)
    assert (block_indent(snapshot, offset), stop_indent(snapshot, offset)) == (block, stop)


@pytest.mark.parametrize(
    ("marked", "kind"),
    [
        ("a:|\nb: 1\n", SuggestionKind.BLOCK),
        ("a:|\n- b\n", SuggestionKind.LINE),
        ("- a:|\n- b\n", SuggestionKind.BLOCK),
        ("a:|\n  b: 1\n", SuggestionKind.LINE),
    ],
)
def test_a_list_below_a_line_of_yaml_is_its_body(marked: str, kind: SuggestionKind) -> None:
    assert suggestion_kind(*at(marked, "a.yaml")) is kind


def test_tabs_count_to_the_next_stop() -> None:
    assert [indent_columns(line) for line in ("\tx", "  \tx", "    x", "", "\t\t", "x")] == [4, 4, 4, 0, 8, 0]


def test_a_colon_of_an_annotation_opens_nothing() -> None:
    assert not opens_block(*at("x = a[b:|\n", "a.py"))
    assert opens_block(*at("else:|\n", "a.py"))


@pytest.mark.parametrize("language", [name for name, spec in LANGUAGES.items() if spec.wheel])
def test_the_tables_of_a_language_fit_its_grammar(language: str) -> None:
    spec, grammar = LANGUAGES[language], syntax_of(language)
    Query(grammar, spec.definitions)
    known = {grammar.node_kind_for_id(number) for number in range(grammar.node_kind_count)}
    for names in (spec.scopes, spec.blocks, spec.strings):
        assert names <= known, names - known
    assert spec.comments & known


@pytest.mark.parametrize(
    ("language", "text", "code"),
    [
        ("python", "if x:  # why", "if x:"),
        ("python", "x = '#:'  # why", "x = '#:'"),
        ("python", "# why", ""),
        ("python", 'x = """a\nb # c\n"""  # d\n\n', '"""'),
        ("javascript", "f(); /* a */ g(`// ${h /* b */}`); // c", "f();  g(`// ${h }`);"),
        ("javascript", "/* a\n b */ f() {", " f() {"),
        ("rust", "/* a /* b */ c */ f", " f"),
        ("c", "#error don't", "#error"),
        ("html", "<p><!-- a --></p>", "<p></p>"),
        ("markdown", "a # b", "a # b"),
        ("python", "", ""),
    ],
)
def test_the_code_of_a_line_is_what_its_comments_leave(language: str, text: str, code: str) -> None:
    snapshot = Document("u", f"{text}\n", language=language).snapshot()
    assert code_above(snapshot, snapshot.line_count - 1) == code
