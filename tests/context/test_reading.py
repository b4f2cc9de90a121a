"""What filters leave of right texts and wrong ones: reports of users of such products, by kind."""

import pytest
from context.test_finish import at
from foretype_context.finish.in_place import parses_in_place
from foretype_context.finish.post_processing import finish
from foretype_context.syntax.blocks import suggestion_kind
from foretype_context.syntax.document import Document


def shown(language: str, marked: str, text: str) -> str:
    """What the line, or the block, is after a suggestion was taken."""
    _, offset = at(marked)
    snapshot = Document("u", marked.replace("|", "", 1), language=language).snapshot()
    finished = finish(text, snapshot, offset, kind=suggestion_kind(snapshot, offset), final=True)
    if parses_in_place(snapshot, offset, finished.text, finished.replaces) is False:
        return ""
    return finished.text


@pytest.mark.parametrize(
    ("language", "marked", "text"),
    [
        ("python", "x = 1\n# convert to int (see |", "the notes) and return it"),
        ("python", "x = 1\n# |", "a) the first case"),
        ("c", "/*\n * |\n */\nint x;\n", "a) the first"),
        ("markdown", "# T\n\n1) first\n|", "2) second"),
        ("lisp", "(foo 'a (bar 'b|", "))"),
        ("shellscript", "case $1 in\n  |\nesac\n", "start) do_start ;;"),
        ("shellscript", 'case "$1" in\n  -h|\nesac\n', "|--help) usage ;;"),
        ("shellscript", "for ((i=0; i<${#arr[@]}; i++|", ")); do"),
        ("rust", "fn f<'a>(x: &'a str, n: usize|", ") -> usize {"),
        ("javascript", "const n = (s.match(|", "/\\}/g) || []).length;"),
        ("python", "import os\n\ndef f():\n    |\n\nprint(f())\n", 'sql = """\nSELECT *\nFROM t\n"""\n    return sql'),
        ("javascript", "function f() {\n  |\n}\n", "const q = `\nSELECT *\nFROM t\n`;\n  return q;"),
        ("go", "package main\n\nfunc f(x int) string {\n\tswitch x {|\n}\n", "\n\tcase 1:\n\t\tf()\n\tdefault:\n\t\tg()\n\t}"),
        ("c", "int f(int x)\n{\n\tswitch (x) {|\n}\n", "\n\tcase 1:\n\t\treturn 2;\n\t}"),
        ("cpp", "class A {|\n};\n", "\npublic:\n  A() {}\n  int x;"),
        ("javascript", 'out.on("end", () => {|\n', "\n  done();\n});"),
        ("go", "func f() {\n\tgo func() {|\n}\n", "\n\t\tg()\n\t}()"),
        ("rust", "fn f() {\n    let t = match n {|\n}\n", "\n        _ => 1,\n    };"),
        ("ruby", "def f\n  | response\nend\n", "with_response"),
        ("python", "x = |\n", "0xFFFFFFFF"),
        ("python", "x = |\n", "100000000"),
        ("python", "x = |\n", '"4242424242424242"'),
        ("python", "x = |\n", '"%s, %s, %s, %s, %s" % row'),
        ("python", "x = |\n", "[0, 0, 0, 0, 0, 0, 0, 0]"),
        ("css", ".a {\n  grid-template-columns: |;\n}\n", "1fr 1fr 1fr 1fr 1fr 1fr 1fr 1fr 1fr 1fr 1fr 1fr"),
        ("typescript", "let a = 1;\nconst m = new Map<|>\n", "string, number>();"),
        # What stands right of the cursor was a comment's.
        ("python", "if x:\n    | Empty range: never match.\n    y = 1\n", "#"),
        ("python", "import a  |: PLC0415\n", "# noqa"),
        ("python", "a.b|defined]\n", " = 1  # type: ignore[attr-"),
        ("python", "x = [a for a in b if |]\nz = 1\n", "not c]  # type: ignore[attr"),
        ("c", "void f() {\n  (void)x| unused variable warning.\n}\n", ";  // Disable"),
        ("javascript", "f();\n|engine/core/projection.js\nfunction g() {}\n", "// packages/"),
        ("javascript", "f();\n| delegate\ng();\n", "//"),
        ("cpp", "namespace a {\nint b;\n\n}  | a\n\nint main() {\n}\n", "// namespace"),
        ("c", "#erro|at all\n", "r not"),
        # Signs that begin in the text and end right of the cursor.
        ("python", 'def f():\n    |""\n    return 1\n', '"""Say."'),
        ("python", 'def f():\n    |"\n    More.\n    """\n    return 1\n', '""'),
        ("shellscript", 'case "| in\n-l) shift ;;\nesac\n', '$1"'),
        ("cpp", 'void f() {\n  auto a = |(\n "b"\n)";\n}\n', 'R"'),
        # Brackets that the reader knows and a grammar, or the text below, does not.
        ("cpp", "namespace a {\n\nTEST_F(A, B) {\n  g();\n|\n\n}  // namespace a\n\nint main() {\n}\n", "}"),
        ("cpp", "namespace a\n{\nMAKE_ENUM(Color,\n{|\n}  // namespace a\n\nint main()\n{\n}\n", '\n    { A, "a" },\n    { B, "b" }\n})'),
        ("csharp", 'var a = new A {\n  { "b", new B {|\n};\n', '\n      C("d")\n    }\n  }'),
        ("go", "func f() {\n\tg(\n\t\th(\n\t\t\t|\n\t)\n}\n", 'i("j"), k).\n\t\t\tl(),'),
        ("c", "/* It is less\n *|\n#if A\nvoid f() {\n#else\nvoid g() {\n#endif\n}\n", " aligned. */"),
        ("php", "<?php\nfunction f() {\n    |\n}\n", "g(\n        1,\n        2\n    );"),
        ("shellscript", "|/sh\necho a\n", "#!/bin"),
        ("shellscript", "case $a in\n  b) c|;\nesac\n", " ;"),
        ("shellscript", "while x; do|\n\ny\n", "\n  z\ndone <<< a"),
        # A line above opens a block, whatever its comment says.
        ("python", "def f():  # noqa\n|\n", "    return 1"),
        ("python", "def f():  # noqa\n|\n", "    x = 1\n    return x"),
        ("python", "x = f(a,  # why\n|\n", "      b)"),
        ("javascript", "function f() { // why\n|\n}\n", "  g();\n  h();"),
        ("javascript", "function f() { /* why */\n|\n}\n", "  g();\n  h();"),
        ("shellscript", "if x; then # why\n|\nfi\n", "  g\n  h"),
        ("python", "def f(x):\n    |\n", 'if x == "#":'),
        # The type of a generic function is no element, which would go on to the file's end.
        ("typescriptreact", "interface A {|\n", "\n  f: <T>(x: T) => void;\n  g: string;\n}"),
        ("typescriptreact", "type F = <Item>(x: |\nconst a = 1;\n", "Item) => void;"),
        ("css", "a {\n  b: url(|\n}\n", "it's.png);"),
        ("c", "int f() {\n  // it's \\\n  |\n}\n", "isn't"),
        # What is said twice, but ends.
        ("javascript", "x\n  .on('a', f)\n  .on|\n  .on('b', f)\n  .on('b', f)\n", "('a', f)"),
        ("typescript", "function f() {\n  |\n}\n", "step(one);\n  step(one);\n  step(one);\n  done(two);"),
        ("javascript", "press(key);\npress(key);\nf(() => {\n  |\n});\n", "press(key);\n  press(key);\n  press(key);"),
        # Comments whose rest stands right of the cursor, told by the lines around, by what they end with or by how the rest begins.
        ("ruby", "# Requires\n#   self.site\n|content\n#   self.data\n", "#   self."),
        ("ruby", "# @!visibility private\ndef f\nend\n\n|visibility private\ndef g\nend\n", "# @!"),
        ("ruby", "|.  The size of the\n# session id.\ndef f\nend\n", "# Generate a new id"),
        ("shellscript", "#!/bin/sh\n\n|-zero status nothing is pushed.\necho a\n", "# If this ends with a non"),
        ("python", "def f(\n    a: int = | A002\n    *,\n    b: int,\n): ...\n", "0,  # noqa:"),
        ("php", "<?php\n$a = [\n    'b' => ['c|...\n    'd' => 1,\n];\n", "'], // Hide what starts with"),
        # A string down there, or the edge of what is looked at, is the file's own affair.
        ("rust", 'fn f() {\n    c.arg(|");\n\n    let e = "\nbar/test\n";\n}\n', '"-l").arg("test'),
        ("java", "class A {\n    |\n     * Says {@code a}.\n     */\n    void f();\n}\n", "/**"),
        # The first line of a body may close more than one thing, its head may go on below, and a bracket may stand on its own line.
        ("javascript", "f((a) => {\n  g();\n}, { h: { i: 1 } |\n\nawait k();\n", "})"),
        ("java", "class A {\n    int f(\n            |\n        return 1;\n    }\n}\n", "int a,\n            int b)\n                throws E {"),
        ("csharp", "var a = new A(\n    b.Select(c => new D\n    |\n\nf();\n", "{\n        e,\n    })\n    );"),
        ("cpp", "namespace a {\nint b;\n\n|  // namespace a\n\nint main() {\n}\n", "}"),
        ("ruby", "class A\n  def f\n    yield\n  ensure|\n\n  def g\n  end\nend\n", "\n    h\n  end"),
        # Names, numbers, rulers and beginnings that look like something said again.
        ("c", "struct a {\n  buf_t |\n  int b;\n};\n", "buf_t;"),
        ("csharp", "class A\n{\n    Pool|}\n}\n", " Pool { get;"),
        ("rust", 'fn f() {\n    p(\n        "a\\\n         \\n|\n        b,\n    );\n}\n', '\\n=====\\n",'),
        ("typescript", "/**\n * @|.0\n */\n", "since 2.0"),
        ("python", 'def f():\n    """\n    ===== | =====\n    """\n', "====="),
        ("c", "int a = |\n", "f(0xffffffffffffLL);"),
        ("csharp", "var a = |\n", "f(0.000000000000000001d);"),
        ("cpp", "const char* a[] = {|;\n", '"longggggggggggggggggggggg"}'),
    ],
)  # fmt: skip
def test_nothing_of_a_right_text_is_cut(language: str, marked: str, text: str) -> None:
    assert shown(language, marked, text) == text


@pytest.mark.parametrize(
    ("language", "marked", "text", "right"),
    [
        ("python", "class A:\n\tdef f(self):|\n", "\n        return 1", "\n\t\treturn 1"),
        ("python", "x = 1\n|\n", " y = 2", "y = 2"),
        ("python", "# Note:\n|\n", "    y = 2", "y = 2"),
        ("python", "x = 1  # as said:\n|\n", "    y = 2", "y = 2"),
        ("python", 'x = "#:"\n|\n', "    y = 2", "y = 2"),
        ("python", "def f():\n    x = 1\n    |\n", " return x", "return x"),
        ("python", "def f():\n    x = 1\n    |\n", "    return x", "return x"),
        ("python", "def f():|\n", "\n     return x\n    return y", ""),
        ("python", "import os\nfor item in |\n", "for item in items:", "items:"),
        ("python", "import os\n\nx = |\n", "x = compute(1)", "compute(1)"),
        ("python", "import os\n\nx = |\n", "let y = 1;", ""),
        ("python", "import os\n\nx = |\n", "```python", ""),
        ("python", "x = comp|\n", "compute(1)", "ute(1)"),
        ("go", "func f() {\n\tg(|)\n}\n", "a)", "a"),
        ("javascript", "function f() {\n  return |;\n}\n", "x;", "x"),
        ("rust", "fn f() {\n    g(|\n}\n", "a))", "a)"),
        # Further left than the block that the lines below close.
        ("typescript", "function f() {\n  g(() => {\n    |\n  });\n}\n", "step(one);\nfunction g() {", "step(one);"),
        ("java", "interface A {\n    |\n}\n", "void f();\npublic interface B {", "void f();"),
        # A closer too many in a tag, between tags, and in a definition.
        ("typescriptreact", "const a = <B c={|\n  d\n/>;\n", "e}}", "e}"),
        ("typescriptreact", "const a = (\n  <b>\n    {c && |\n  </b>\n);\n", "d}}", "d}"),
        ("c", "#define A|\nint b;\n", " 2048)", " 2048"),
        ("typescriptreact", "type F = <T>(x: T) => T;\nconst a = [|];\n", "1, 2];", "1, 2"),
        ("typescriptreact", "type F = new <T>(x: T) => T;\nconst a = [|];\n", "1, 2];", "1, 2"),
        ("typescriptreact", "const f = <T>(see x)</T>;\nconst a = [|];\n", "1, 2];", "1, 2"),
        # Blanks too many, tabs where the file has two blanks, in lists and docstrings as well.
        ("python", "def f():\n    x = 1\n    |\n", "y = 2\n     return y", "y = 2\n    return y"),
        ("python", "x = f(\n    a,\n    |\n)\n", "b,\n     c,", "b,\n    c,"),
        ("python", "class A:\n    def f(self):|\n\n    def g(self):\n        pass\n", '\n\t\t"""Say.\n\n\t\tMore.\n\t\t"""\n\t\treturn 1', '\n        """Say.\n\n        More.\n        """\n        return 1'),
        ("javascript", "function f() {\n  if (a) {\n    |\n  }\n}\n", "b();\n\tc();", "b();\n    c();"),
        # The rest of the line, said again.
        ("javascript", "try {\n  f();\n} | {\n  g();\n}\n", "finally {", "finally"),
        ("typescript", "const x| =\n  1;\n", "y =", "y"),
        ("javascript", "f(a|(b); // c\n", ".d(b); // c", ".d"),
        ("python", 'def f():\n    """Say (see |)\n    """\n', "below)", "below"),
        ("javascript", "/**\n * Say (e.|.\n */\n", "g. this).", "g. this)"),
        ("javascript", "/**\n * Say `|`\n */\n", "this`", "this"),
        ("ruby", 'require |"\n\nmodule A\n  B = "c" # d\nend\n', '"set"', '"set'),
        ("shellscript", "f() {\n\texit| 1\n}\n", " 1", ""),
        ("shellscript", "if a; then\n\t| 1\nfi\n", "exit 1", "exit"),
        ("shellscript", "f | \\\n  --b\n", "--a \\", "--a"),
        ("csharp", "class A\n{\n    string B|}\n\n    string C();\n}\n", " { get; }", " { get;"),
        ("csharp", "class A\n{\n    |>\n    /// Says.\n    int B;\n}\n", "/// <summary>", "/// <summary"),
        ("csharp", "class A\n{\n    //   {\n    |}\n    int B;\n}\n", "//   }", "//"),
        # A closer too many, told by the next line of the same body, by a shell's arms and by tags.
        ("csharp", "namespace A\n{\n    class B\n    {\n        int c = |\n        int d = 1;\n    }\n}\n", "0;}", "0;"),
        ("shellscript", "case $a |\nb) c ;;\nesac\n", "in)", "in"),
        ("shellscript", "case $a in\nb)\n  c |\nd) ;;\nesac\n", ";;)", ";;"),
        ("shellscript", "case $a in\nb)\n  c=( |\n  ;;\nesac\n", "$(d) ))", "$(d) )"),
        ("shellscript", "f --a |\n  --b\n", "c \\]", "c \\"),
        ("typescriptreact", "const a = (\n  <B\n    c={|\n    d\n  />\n);\n", "e}]", "e}"),
        # Text outside of the block, however much of the block is still open.
        ("java", "class A {\n    |\n    }\n}\n", "int f() {\n        return 1;\nclass B {", "int f() {\n        return 1;"),
        ("typescript", "f({\n    a: [\n        |\n    ],\n});\n", "b,\n        c,\n    d: [", "b,\n        c,"),
        # A licence in blanks says nothing of a file in tabs.
        ("csharp", "/*\n  Free.\n  Free.\n  Free.\n*/\nclass A\n{\n\tvoid F()\n\t{\n\t\t|\n\t}\n}\n", "if(a)\n        {\n            b();\n        }", "if(a)\n\t\t{\n\t\t\tb();\n\t\t}"),
    ],
)  # fmt: skip
def test_a_wrong_text_becomes_the_right_one_or_nothing(language: str, marked: str, text: str, right: str) -> None:
    assert shown(language, marked, text) == right


def test_a_suggestion_never_opens_a_string_that_swallows_what_stands_below() -> None:
    assert shown("python", "def f():\n    |\n\nprint(f())\n", 'sql = """') == ""
