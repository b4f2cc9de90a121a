"""Parameters changed: what becomes of the calls, where only the way to them is known, and where nothing is said."""

import pytest
from context.typing_editor import Editor, changed, followed_in, parsed
from foretype_context.edits.calls import calls_of, declaration_around, declaration_named
from foretype_context.edits.next_edit import Evidence, NextEdit
from foretype_context.syntax.document import Edit

FOLLOWS = {
    "python-removed": ("python", "def f(a, b):\n    return a\n\n\nx = f(1, 2)\nf(g(1),\n  [2, 3])\n", "a, b", "a", "x = f(1)\nf(g(1))\n"),
    "python-removed, by keyword": ("python", "def f(a, b=1, c=2):\n    return a\n\n\nf(1, b=3, c=4)\nf(1, c=4)\nf(1, 3, 4)\n", ", b=1", "", "f(1, c=4)\nf(1, c=4)\nf(1, 4)\n"),
    "python-the only one": ("python", "def f(a):\n    return 1\n\n\nf(1)\nf(a=1)\n", "a", "", "f()\nf()\n"),
    "python-moved": ("python", "def f(a, b):\n    return a - b\n\n\nf(1, 2)\nf(b, a)\nf(1, b=2)\nf(a=1, b=2)\n", "a, b", "b, a", "f(2, 1)\nf(a, b)\nf(a=1, b=2)\nf(a=1, b=2)\n"),
    "python-keyword from now on": ("python", "def f(a, b=1):\n    return a\n\n\nf(1, 2)\nf(1)\n", "a, b", "a, *, b", "f(1, b=2)\nf(1)\n"),
    "python-another name": ("python", "def f(width):\n    return 1\n\n\nf(width=2)\nf(2)\ng(width=3)\n", "width", "size", "f(size=2)\nf(2)\ng(width=3)\n"),
    "python-added, seen there": ("python", "def f(a):\n    return 1\n\n\ndef g(ctx):\n    return f(1)\n\n\ndef h(context):\n    ctx = context\n    return [f(x) for x in ctx]\n", "a", "a, ctx", "def g(ctx):\n    return f(1, ctx)\n\n\ndef h(context):\n    ctx = context\n    return [f(x, ctx) for x in ctx]\n"),
    "python-added before others": ("python", "def f(a):\n    return 1\n\n\ndef g(ctx):\n    return f(1) + f(a=2)\n", "a", "ctx, a", "return f(ctx, 1) + f(ctx, a=2)\n"),
    "python-added behind a default": ("python", "def f(a, b=1):\n    return 1\n\n\ndef g(ctx):\n    return f(1) + f(1, 2)\n", "b=1", "b=1, *, ctx", "return f(1, ctx=ctx) + f(1, 2, ctx=ctx)\n"),
    "python-a default makes it needless": ("python", "def f(a):\n    return 1\n\n\nf(1)\n", "a", "a, b=None", "f(1)\n"),
    "python-a default in the middle": ("python", "def f(a, c=1):\n    return 1\n\n\nf(1, 2)\nf(1)\n", "a, ", "a, b=0, ", "f(1, c=2)\nf(1)\n"),
    "python-method": ("python", "class A:\n    def f(self, a, b):\n        return self.f(1, 2)\n\n    def g(self, o):\n        return o.f(1, 2), self.f(3, b=4)\n\n\nclass B:\n    def g(self):\n        return self.f(1, 2)\n", "a, b", "a", "return self.f(1)\n\n    def g(self, o):\n        return o.f(1, 2), self.f(3)\n\n\nclass B:\n    def g(self):\n        return self.f(1, 2)\n"),
    "python-static": ("python", "class A:\n    @staticmethod\n    def f(a, b):\n        return 1\n\n    def g(self):\n        return A.f(1, 2)\n\n\nA.f(3, 4)\n", "a, b", "b", "return A.f(2)\n\n\nA.f(4)\n"),
    "python-class method": ("python", "class A:\n    @classmethod\n    def f(cls, a, b):\n        return cls.f(1, 2)\n\n\nA.f(3, 4)\n", "a, b", "b", "return cls.f(2)\n\n\nA.f(4)\n"),
    "python-constructor": ("python", "class A:\n    def __init__(self, a, b):\n        self.a = a\n\n\ndef g():\n    return A(1, 2)\n", "a, b", "a", "return A(1)\n"),
    "python-lines": ("python", "def f(\n    a,\n    b,\n    c,\n):\n    return 1\n\n\nf(\n    1,\n    2,\n    3,\n)\n", "    b,\n", "", "f(\n    1,\n    3,\n)\n"),
    "python-rest": ("python", "def f(a, *rest):\n    return 1\n\n\nf(1, 2, 3)\n", "a, ", "", "f(1, 2, 3)\n"),
    "javascript-function": ("javascript", "function f(a, b, c) { return 1; }\nconst x = f(1, { y: 2 }, 3);\nfunction g(f) { return f(1, 2, 3); }\n", "a, b, c", "a, c", "const x = f(1, 3);\nfunction g(f) { return f(1, 2, 3); }\n"),
    "javascript-added": ("javascript", "function f(a) { return a; }\nfunction g(log) { f(1); }\nfunction h() { f(2); }\n", "a", "a, log", "function g(log) { f(1, log); }\nfunction h() { f(2); }\n"),
    "javascript-arrow": ("javascript", "const f = (a, b) => a;\nf(1, f(2, 3));\n", "a, b", "b, a", "f(f(3, 2), 1);\n"),
    "javascript-method": ("javascript", "class A {\n  f(a, b) { return 1; }\n  g() { return this.f(1, 2) + [1].map((x) => this.f(x, 2)); }\n  h() { return function () { return this.f(1, 2); }; }\n}\n", "a, b", "a", "this.f(1) + [1].map((x) => this.f(x)); }\n  h() { return function () { return this.f(1, 2); }; }\n}\n"),
    "javascript-constructor": ("javascript", "class A {\n  constructor(a, b) {}\n}\nnew A(1, 2);\n", "a, b", "a", "new A(1);\n"),
    "typescript-function": ("typescript", "function f(a: number, b: string): void {}\nf(1, 'x');\n", "a: number, b: string", "b: string, a: number", "f('x', 1);\n"),
    "typescript-added": ("typescript", "function f(a: number): void {}\nfunction g(log: Log) { f(1); }\nfunction h() { f(2); }\n", "a: number", "a: number, log: Log", "function g(log: Log) { f(1, log); }\nfunction h() { f(2); }\n"),
    "typescript-optional": ("typescript", "function f(a: number): void {}\nf(1);\n", "a: number", "a: number, b?: string", "f(1);\n"),
    "typescript-constructor": ("typescript", "class A {\n  constructor(private a: number, b: string) {}\n}\nconst a = new A(1, 'x');\n", ", b: string", "", "const a = new A(1);\n"),
    "go-function": ("go", "package p\n\nfunc f(a, b int, c string) int {\n\treturn a\n}\n\nvar x = f(1, 2, \"x\")\n", "a, b int, c", "a int, c", "var x = f(1, \"x\")\n"),
    "go-added": ("go", "package p\n\nfunc f(a int) int {\n\treturn a\n}\n\nfunc g(ctx context.Context) int {\n\treturn f(1)\n}\n", "a int", "ctx context.Context, a int", "return f(ctx, 1)\n}\n"),
    "go-method": ("go", "package p\n\nfunc (s *T) f(a, b int) int {\n\treturn a\n}\n\nfunc (t *T) g(u *U) int {\n\treturn t.f(1, 2) + u.f(3, 4)\n}\n", "a, b int", "a int", "return t.f(1) + u.f(3, 4)\n}\n"),
    "java-method": ("java", "class A {\n  int f(int a, String b) { return 1; }\n  int g(A o) { return f(1, \"x\") + this.f(2, \"y\") + o.f(3, \"z\"); }\n}\n", ", String b", "", "return f(1) + this.f(2) + o.f(3, \"z\"); }\n}\n"),
    "java-constructor": ("java", "class A {\n  A(int a, int b) { }\n  static A of() { return new A(1, 2); }\n}\n", "int a, int b", "int b", "return new A(2); }\n}\n"),
    "rust-function": ("rust", "fn f(a: usize, b: usize) -> usize { a }\nfn g() -> usize { f(1, 2) }\n", "a: usize, b: usize", "b: usize, a: usize", "f(2, 1) }\n"),
    "rust-method": ("rust", "impl T {\n    fn f(&self, a: i32, b: i32) -> i32 { a }\n    fn g(&self) -> i32 { self.f(1, 2) }\n    fn new(x: i32) -> Self { T }\n}\n", "a: i32, b: i32", "a: i32", "self.f(1) }\n    fn new(x: i32) -> Self { T }\n}\n"),
    "rust-constructor": ("rust", "impl T {\n    fn new(a: i32, b: i32) -> Self { T }\n    fn of() -> Self { Self::new(1, 2) }\n}\nfn g() -> T { T::new(3, 4) }\n", "a: i32, b: i32", "b: i32", "Self::new(2) }\n}\nfn g() -> T { T::new(4) }\n"),
    "words beyond ASCII, and CRLF": ("python", "# grüße 😀\r\ndef f(é, b):\r\n    return é\r\n\r\n\r\nx = '😀'; f('ü', 2)\r\n", "é, b", "b, é", "x = '😀'; f(2, 'ü')\r\n"),
    "tabs": ("python", "def f(\n\ta,\n\tb,\n):\n\treturn 1\n\n\nf(\n\t1,\n\t2,\n)\n", "\tb,\n", "", "f(\n\t1,\n)\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLLOWS)
def test_calls_follow_the_parameters_and_nothing_else_does(name: str) -> None:
    language, text, old, new, tail = FOLLOWS[name]
    editor = changed(text, old, new, language)
    declared = editor.text
    taken = editor.take_all()
    assert editor.text.endswith(tail)
    follows = Evidence.DECLARATION if name == "python-another name" else Evidence.SIGNATURE
    assert all(one.evidence is follows for one in taken)
    head = len(declared) - len(text) + text.index(old) + len(old)
    assert editor.text[:head] == declared[:head]


JUMPS = {
    "added, and nobody knows what": ("python", "def f(a):\n    return 1\n\n\nf(1)\n", "a", "a, b", "f(1"),
    "a function of that name": ("python", "def ctx():\n    pass\n\n\ndef f(a):\n    return 1\n\n\nf(1)\n", "a", "a, ctx", "f(1"),
    "a variable that comes later": ("python", "def f(a):\n    return 1\n\n\ndef g():\n    f(1)\n    ctx = 2\n", "a", "a, ctx", "f(1"),
    "a variable of another function": ("python", "def f(a):\n    return 1\n\n\ndef h(ctx):\n    pass\n\n\ndef g():\n    f(1)\n", "a", "a, ctx", "f(1"),
    "in the middle": ("python", "def f(a, c):\n    return 1\n\n\nf(1, 3)\n", "a, c", "a, b, c", "f(1"),
    "first": ("python", "def f(c):\n    return 1\n\n\nf(3)\n", "c", "b, c", "f("),
    "over several lines": ("python", "def f(a):\n    return 1\n\n\nf(\n    1,\n)\n", "a", "a, b", "    1"),
    "go": ("go", "package p\n\nfunc f(a int) int {\n\treturn a\n}\n\nvar x = f(1)\n", "a int", "a int, b string", "f(1"),
    "java": ("java", "class A {\n  int f(int a) { return 1; }\n  int g() { return f(1); }\n}\n", "int a", "int a, int b", "return f(1"),
}  # fmt: skip


@pytest.mark.parametrize("name", JUMPS)
def test_where_what_is_to_be_given_is_not_known_there_is_the_way_alone(name: str) -> None:
    language, text, old, new, place = JUMPS[name]
    at = text.index("def f") if language == "python" else 0
    editor = Editor(text[:at] + text[at:].replace(f"({old})", "(☃)", 1).replace("☃", old), language)
    start = text.index(f"f({old})") + 2
    for end in range(start + len(old), start, -1):
        editor.change(Edit(end - 1, end, ""))
    for offset, character in enumerate(new):
        editor.change(Edit(start + offset, start + offset, character))
    one = editor.next()
    assert one is not None and one.jump_only and one.evidence is Evidence.SIGNATURE
    assert one.edit.start == one.edit.end == editor.text.rindex(place) + len(place) and one.edit.text == ""
    assert editor.next(one.edit.start) is None  # who is there has seen it
    assert editor.next() is None


SILENT = {
    "star": ("python", "def f(a, b):\n    return 1\n\n\nf(*x)\nf(1, **x)\n", "a, b", "a"),
    "a call that never fitted": ("python", "def f(a, b):\n    return 1\n\n\nf(1, 2, 3)\nf(1, c=2)\n", "a, b", "a"),
    "a string of code": ("python", "def f(a, b):\n    return 1\n\n\neval('f(1, 2)')  # f(1, 2)\n", "a, b", "a"),
    "a name that is given on": ("python", "def f(a, b):\n    return 1\n\n\nmap(f, x)\n", "a, b", "a"),
    "declared twice": ("python", "def f(a, b):\n    return 1\n\n\nif x:\n    f = g\nf(1, 2)\n", "a, b", "a"),
    "a shadow": ("python", "def f(a, b):\n    return 1\n\n\ndef g(f):\n    f(1, 2)\n", "a, b", "a"),
    "a decorator that may give what it likes": ("python", "@click.command()\ndef f(a, b):\n    return 1\n\n\nf(1, 2)\n", "a, b", "a"),
    "others for others": ("python", "def f(a, b):\n    return 1\n\n\nf(1, 2)\n", "a, b", "config"),
    "what a script may leave out": ("javascript", "function f(a) {}\nf(1);\n", "a", "a, b"),
    "what is given already": ("python", "def f(a, b, c):\n    return 1\n\n\ndef g(ctx):\n    f(1, 2, ctx)\n", "a, b, c", "a, b, c, ctx"),
    "another type": ("typescript", "function f(a: number): void {}\nf(1);\n", "a: number", "b: Config"),
    "overloads": ("java", "class A {\n  int f(int a, int b) { return 1; }\n  int f(String a) { return 1; }\n  int g() { return f(1, 2); }\n}\n", "int a, int b", "int a"),
    "overloads of TypeScript": ("typescript", "function f(a: number): void;\nfunction f(a: number, b: string): void {}\nf(1, 'x');\n", "a: number, b: string", "a: number"),
    "a comment among the arguments": ("python", "def f(a, b):\n    return 1\n\n\nf(1,  # one\n  2)\n", "a, b", "a"),
    "the object": ("python", "class A:\n    def f(self, a):\n        return self.f(1)\n", "self, a", "a"),
    "a trait, whose others nobody knows": ("rust", "impl Q for T {\n    fn f(&self, a: i32, b: i32) -> i32 { self.f(1, 2) }\n}\n", "a: i32, b: i32", "a: i32"),
    "a language without rules": ("ruby", "def f(a, b)\n  f(1, 2)\nend\n", "a, b", "a"),
}  # fmt: skip


@pytest.mark.parametrize("name", SILENT)
def test_where_it_is_not_certain_nothing_is_said(name: str) -> None:
    language, text, old, new = SILENT[name]
    assert changed(text, old, new, language).next() is None


def test_a_declaration_is_found_by_its_name_and_from_within_its_parameters() -> None:
    tree, source = parsed("class A:\n    def f(self, a):\n        return self.f(1)\n", "python")
    root = tree.root_node
    one = declaration_around(root, source, source.index(b"self, a") + 2)
    assert one is not None and one == declaration_named(root, source, source.index(b"f(self"))
    assert one.bound and [
        source[call.start_byte : call.end_byte] for call in calls_of(one, root, source, "python")
    ] == [b"(1)"]
    assert declaration_around(root, source, source.index(b"return")) is None
    assert declaration_named(root, source, source.index(b"A")) is None


def test_a_call_that_the_user_changed_shows_what_the_others_give() -> None:
    editor = changed("def f(a):\n    return 1\n\n\nf(1)\nf(2)\nf(3)\n", "a", "a, b")
    one = editor.next()
    assert one is not None and one.jump_only
    editor.replace("f(1)", "f(1, None)")
    editor.take_all()
    assert editor.text.endswith("f(1, None)\nf(2, None)\nf(3, None)\n")


def test_two_calls_that_give_different_things_show_nothing() -> None:
    editor = changed("def f(a):\n    return 1\n\n\nf(1)\nf(2)\nf(3)\n", "a", "a, b")
    editor.replace("f(1)", "f(1, None)")
    editor.replace("f(2)", "f(2, 'x')")
    one = editor.next()
    assert one is not None and one.jump_only


def test_what_the_user_did_by_hand_is_done() -> None:
    editor = changed("def f(a, b):\n    return 1\n\n\nf(1, 2)\nf(3, 4)\n", "a, b", "b, a")
    editor.replace("1, 2", "2, 1")
    one = editor.next()
    assert one is not None and one.left == 0
    editor.take(one)
    assert editor.text.endswith("f(2, 1)\nf(4, 3)\n") and editor.next() is None


def test_parameters_that_come_back_ask_nothing() -> None:
    editor = changed("def f(a, b):\n    return 1\n\n\nf(1, 2)\n", ", b", "")
    assert editor.next() is not None
    editor.replace("f(a", "f(a, b")
    assert editor.next() is None


def test_a_signature_that_is_changed_in_two_goes_is_followed_once() -> None:
    editor = changed("def f(a, b, c):\n    return 1\n\n\nf(1, 2, 3)\n", ", b", "")
    editor.replace("return 1", "return 2")
    editor.replace("a, c", "c, a")
    taken: list[NextEdit] = editor.take_all()
    assert editor.text.endswith("f(3, 1)\n") and len(taken) == 1


ELSEWHERE = {
    "python": ("python", "pkg/mod.py", "def f(a, b):\n    return 1\n", "a, b", "a", "a.py", "from pkg.mod import f as g\nimport pkg.mod\n\ng(1, 2)\npkg.mod.f(3, 4)\nf(5, 6)\n", "g(1)\npkg.mod.f(3)\nf(5, 6)\n"),
    "python-class": ("python", "pkg/mod.py", "class A:\n    def __init__(self, a, b):\n        pass\n", "a, b", "a", "a.py", "from .pkg.mod import A\n\nA(1, 2)\n", "A(1)\n"),
    "python-moved: nobody knows whether it was done": ("python", "pkg/mod.py", "def f(a, b):\n    return 1\n", "a, b", "b, a", "a.py", "from pkg.mod import f\n\nf(1, 2)\n", "f(1, 2)\n"),
    "typescript": ("typescript", "src/m.ts", "export function f(a: number, b: string) {}\n", ", b: string", "", "src/a.ts", "import { f } from './m';\nf(1, 'x');\n", "f(1);\n"),
    "typescript-class": ("typescript", "src/m.ts", "export class A {\n  constructor(a: number, b: string) {}\n}\n", ", b: string", "", "src/a.ts", "import { A } from './m';\nnew A(1, 'x');\n", "new A(1);\n"),
    "go": ("go", "pkg/m/a.go", "package m\n\nfunc F(a int, b int) {}\n", ", b int", "", "b.go", "package main\n\nimport \"x.org/y/pkg/m\"\n\nfunc main() {\n\tm.F(1, 2)\n\tF(1, 2)\n}\n", "\tm.F(1)\n\tF(1, 2)\n}\n"),
    "a method, whose objects nobody knows": ("python", "pkg/mod.py", "class A:\n    def f(self, a, b):\n        pass\n", "a, b", "a", "a.py", "from pkg.mod import A\n\nA().f(1, 2)\n", "A().f(1, 2)\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", ELSEWHERE)
def test_calls_in_other_files_follow_where_the_name_is_imported(name: str) -> None:
    language, path, text, old, new, other, content, tail = ELSEWHERE[name]
    editor = changed(text, old, new, language)
    assert followed_in(editor.elsewhere(path), other, content, language).endswith(tail)
