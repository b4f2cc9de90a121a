"""What half-typed text is taken for, each state in words; and what the grammars make of half-typed code, each with the version it was seen with.

The grammars' table says why nobody asks the tree what is a string or which brackets are open: a new version that answers otherwise
fails here, and the sentence is to be written anew (docs/decisions/0019-lexical-model.md has the same table for readers).
"""

from importlib.metadata import version

import pytest
from foretype_context.syntax.blocks import SuggestionKind, suggestion_kind, within
from foretype_context.syntax.document import Document
from foretype_context.syntax.languages import parser_for
from foretype_context.syntax.lexis import Within
from tree_sitter import Node

STRING, COMMENT, CODE = Within.STRING, Within.COMMENT, None
LINE, BLOCK = SuggestionKind.LINE, SuggestionKind.BLOCK

STATES = [
    ("python", 'x = "abc', STRING, "a string that was begun"),
    ("python", 'log.info("start', STRING, "a string in an open call"),
    ("python", 'def f():\n    """Say.\n    more', STRING, "the second line of an open docstring"),
    ("python", 'x = f"{b', CODE, "the open hole of an f-string"),
    ("python", 'x = f"{b:>{wid', CODE, "a hole in the format of a hole"),
    ("python", 'x = f"{b:>', STRING, "the format of a hole"),
    ("python", 'x = f"{{b', STRING, "two braces are a sign of an f-string's text"),
    ("python", "x = 1  # see f(a", COMMENT, "a comment with an open bracket"),
    ("python", "foo(a, ", CODE, "an open call"),
    ("go", 'import (\n\t"github', STRING, "a path of an import"),
    ("go", "x := `a\n'", STRING, "a raw string over lines, with the other quote"),
    ("go", "r := '\\''; f(", CODE, "behind a character that is a quote"),
    ("c", "/* c", COMMENT, "an open block comment"),
    ("c", "#error don't\nint x", CODE, "below a directive with an apostrophe"),
    ("c", "// it's \\\n isn't ", COMMENT, "a comment that its line's last sign continues"),
    ("c", "// it's \\\r\n isn't\r\nf(", CODE, "below such a comment"),
    ("java", "// it's \\\nf(", CODE, "below a comment that nothing continues"),
    ("cpp", "1'000 + ", CODE, "behind a separated number"),
    ("cpp", 'auto s = R"x(a)" ', STRING, "a raw string that its own end has not ended"),
    ("rust", "fn f(x: &'static ", CODE, "behind a lifetime"),
    ("rust", "impl<'a> ", CODE, "behind a parameter of lifetime"),
    ("rust", "let c = '\"'; f(", CODE, "behind a character that is a quote"),
    ("rust", 'let s = r#"a" ', STRING, "a raw string that a bare quote does not end"),
    ("rust", "/* a /* b */ c", COMMENT, "a comment around a comment"),
    ("typescriptreact", "const a = <p>don't {a.", CODE, "a hole between tags, behind an apostrophe"),
    ("typescriptreact", "type F = <T>(x: T) => T; '", STRING, "a string behind the type of a generic function"),
    ("typescriptreact", "f({ g: <Item>(x: Item, h: (y: Item) => void) => 0, '", STRING, "a string behind one with a function among its parameters"),
    ("typescriptreact", "let f: <TData>(\n  ...x: TData[],\n) => '", STRING, "a string behind one over lines"),
    ("typescriptreact", "interface A { new <Item>(x: Item): Item; <T>(x: T): '", STRING, "a string behind signatures without a name"),
    ("typescriptreact", "const f = <const T,>(x: T) => '", STRING, "a string behind a constant parameter of type"),
    ("typescriptreact", "const f = <T = unknown,>(x: T) => '", STRING, "a string behind one with a default"),
    ("typescriptreact", "const a = <p>(see (a) it's) {g((x) => x)} isn't</p>, b = '", STRING, "a string behind an element of brackets"),
    ("typescriptreact", "const a = <p>(isn't) ", CODE, "between tags, brackets and an apostrophe"),
    ("typescriptreact", "const a = b ? <C>(isn't)</C> : <T>it's ", CODE, "in an element that is called as a type would be"),
    ("javascript", "const n = (s.match(/\\}[/'(]/g) || [], ", CODE, "behind a regular expression of brackets and quotes"),
    ("javascript", "if (a) /'/g.test(b); f(", CODE, "behind a regular expression that a bracket stands before"),
    ("javascript", "}\n/[/']/.exec(b); f(", CODE, "behind one that a body stands before"),
    ("javascript", "x = (a) / b / c.test(d); '", STRING, "a string behind two divisions of brackets"),
    ("javascript", "x = a / b / c; '", STRING, "a string behind two divisions"),
    ("javascript", "`a${b(`c${", CODE, "a hole in a template in a hole"),
    ("shellscript", 'x="$(ls ', CODE, "a command in a string"),
    ("shellscript", '"${HO', CODE, "a parameter in a string"),
    ("shellscript", "echo ${#a[@]} $# ", CODE, "behind lengths and counts, which are no comments"),
    ("shellscript", "cat <<'EOF'\nit's $(", STRING, "a heredoc that nothing is put into"),
    ("shellscript", "cat <<EOF\nit's $(ls ", CODE, "a command in a heredoc"),
    ("shellscript", "let a=1<<b\necho ", CODE, "below a shift in a sum"),
    ("shellscript", "if x; then let a=1<<b; fi\necho ", CODE, "below one in a body"),
    ("shellscript", "a[i<<b]=1\necho ", CODE, "below a shift in an index"),
    ("shellscript", "let a=1; cat <<b\nit's ", STRING, "a heredoc behind a sum"),
    ("shellscript", "a[1]=$(cat <<b\nit's ", STRING, "a heredoc behind an index"),
    ("csharp", '$"a{b.', CODE, "a hole of an interpolated string"),
    ("csharp", '$"{b:0.0}"; f(', CODE, "behind a hole with a format"),
    ("csharp", '$"{b:0"; f(', CODE, "behind a string that ended in the format of a hole"),
    ("csharp", '$"{b:hh\\"mm', STRING, "the format of a hole, with a quote"),
    ("csharp", '@"a\\"; f(', CODE, "behind a verbatim string that ends in a backslash"),
    ("csharp", 'var a = """\n"b" ', STRING, "a raw string with quotes"),
    ("java", 'String a = """\n"b" ', STRING, "a text block with quotes"),
    ("ruby", "x = <<~EOS\n  it's (\n", STRING, "a heredoc"),
    ("ruby", 'x = "a#{b.', CODE, "a hole of a string"),
    ("ruby", "x = %w[a b", STRING, "an open list of words"),
    ("ruby", "puts /'/; ", CODE, "behind a regular expression of a quote"),
    ("php", "<?php\n$a = \"x{$b->", CODE, "a hole of a string"),
    ("php", "<p>it's</p>\n<?php f(", CODE, "code behind a page with an apostrophe"),
    ("php", "<?php // it's ?>\n<?php f(", CODE, "code behind a comment that its page ended"),
    ("lua", "--[==[ it's\n]] ", COMMENT, "a long comment that fewer signs do not end"),
    ("lua", "--[[ it's ]] f(", CODE, "code behind a comment that has ended on its line"),
    ("lua", "x = [[it's\n", STRING, "a long string over lines"),
    ("lua", "x = t[a[1]] .. '", STRING, "a string behind two closing brackets"),
    ("css", "a { b: url(it's/*.png); c: '", STRING, "a string behind an address without quotes"),
    ("css", "a { b: url('c.png'); d: ", CODE, "behind an address in quotes"),
    ("xml", "<a b='c'><![CDATA[ <d> it's ]]></a><e f='", STRING, "an attribute behind what is no markup"),
    ("markdown", "it's (", CODE, "prose has no strings"),
    ("html", "<p>it's <a href='", STRING, "an attribute, behind an apostrophe of the text"),
]  # fmt: skip


@pytest.mark.parametrize(("language", "text", "inside", "words"), STATES, ids=[f"{row[0]}: {row[3]}" for row in STATES])
def test_half_typed_text_is_told(language: str, text: str, inside: Within | None, words: str) -> None:
    assert within(Document("u", text, language=language).snapshot(), len(text)) is inside, words


KINDS = [
    ("python", "def f(a|", LINE, "an open signature is a line"),
    ("python", "y = {f(x):|", LINE, "a key of a dictionary opens nothing"),
    ("python", "x = y[a:|", LINE, "nor does a slice"),
    ("python", "if x:|", BLOCK, "a statement's colon opens a block"),
    ("shellscript", "sudo|", LINE, "a word that ends in `do` is none"),
    ("shellscript", "for x in y; do|", BLOCK, "`do` opens a block"),
    ("lua", "if x then|", BLOCK, "`then` opens a block"),
    ("go", "func f() {|", BLOCK, "a brace opens a block"),
    ("go", 'x := "{|', LINE, "a brace in an open string opens nothing"),
    ("python", "if x:  # why\n|", BLOCK, "below a statement's colon, a comment behind it"),
    ("python", "# Note:\n|", LINE, "below a comment that ends in a colon"),
    ("python", 'x = "#:"\n|', LINE, "below a string that ends as a comment would"),
    ("javascript", "out.on('end', () => {|", BLOCK, "a brace in an open call opens a block"),
]


@pytest.mark.parametrize(("language", "marked", "kind", "words"), KINDS, ids=[f"{row[0]}: {row[3]}" for row in KINDS])
def test_half_typed_text_opens_a_block_or_none(language: str, marked: str, kind: SuggestionKind, words: str) -> None:
    text = marked.replace("|", "")
    snapshot = Document("u", f"{text}\n", language=language).snapshot()
    assert suggestion_kind(snapshot, marked.index("|")) is kind, words


TWO = "\n\ndef g():\n    pass\n\ndef h():\n    pass\n"
ERROR, FINE = True, False
GRAMMARS = [
    ("python", "python 0.25.0", "foo(" + TWO, ERROR, 2, "an open call without arguments loses no function below"),
    ("python", "python 0.25.0", "foo(a" + TWO, ERROR, 1, "with one it loses a function"),
    ("python", "python 0.25.0", "x = [1" + TWO, ERROR, 1, "an open list loses one"),
    ("python", "python 0.25.0", "x = {" + TWO, ERROR, 0, "an open dictionary loses all"),
    ("python", "python 0.25.0", "x.\ny = 1\n", FINE, 0, "a dangling dot takes the next line's name in"),
    ("ruby", "ruby 0.23.1", "class A\n  def f\n    if x\n  end\n\n  def g\n  end\nend\n", ERROR, 2, "one missing `end` turns the root into an error"),
    ("ruby", "ruby 0.23.1", "x.\n\ndef g\nend\n", FINE, 0, "a dangling dot takes a definition in"),
    ("rust", "rust 0.24.2", "fn f() {\n    x.\n    Ok(())\n}\n", FINE, 1, "a dangling dot above a value is no error"),
    ("rust", "rust 0.24.2", "fn f() {\n    x +\n    Ok(())\n}\n", FINE, 1, "nor is a dangling sign"),
    ("shellscript", "bash 0.25.1", "if x; then\n  y\nfi\nfi\n", FINE, 0, "a surplus `fi` is no error"),
    ("shellscript", "bash 0.25.1", "f() {\n  y\n}\n}\n", FINE, 1, "nor is a surplus brace"),
    ("shellscript", "bash 0.25.1", "exec 3<>f\n", ERROR, 0, "right code that it does not know: `<>`"),
    ("c", "c 0.24.2", "int x;\n#endif\nint y;\n", FINE, 0, "a stray `#endif` is no error"),
    ("php", "php 0.25.1", "<?php\n$a->\n$b = 1;\n", FINE, 0, "a dangling arrow takes the next line's name in"),
    ("java", "java 0.23.5", "class A { void f() {\n a.\n b();\n } }\n", FINE, 1, "a dangling dot takes the next line's call in"),
    ("go", "go 0.25.0", "package a\nfunc f() {\n\tx.\n\ty()\n}\n", FINE, 1, "a dangling dot takes the next line's call in"),
    ("javascript", "javascript 0.25.0", "x.\nconst a = 1;\n", ERROR, 0, "a dangling dot takes `const` in"),
    ("javascript", "javascript 0.25.0", "class A { accessor x = 1; }\n", ERROR, 0, "right code that it does not know: `accessor`"),
]  # fmt: skip
FUNCTIONS = frozenset({"function_definition", "function_item", "function_declaration", "method_declaration", "method"})


def functions(node: Node) -> int:
    return (node.type in FUNCTIONS) + sum(functions(child) for child in node.children)


@pytest.mark.parametrize(
    ("language", "seen", "text", "error", "found", "words"), GRAMMARS, ids=[f"{row[1]}: {row[5]}" for row in GRAMMARS]
)
def test_what_grammars_make_of_half_typed_code(
    language: str, seen: str, text: str, error: bool, found: int, words: str
) -> None:
    parser = parser_for(language)
    root = parser.parse(text.encode()).root_node
    here = version(f"tree-sitter-{seen.split()[0]}")
    assert (root.has_error, functions(root)) == (error, found), f"{words}: seen with {seen}, here it is {here}"
