"""A field or a method got another name: the places that are certainly its own, and those that may be somebody else's.

`«»` is what was renamed, `‹›` what is to follow.
"""

import pytest
from context.test_renames import sites
from context.typing_editor import parsed
from foretype_context.edits.member_rules import MEMBERS
from foretype_context.edits.members import member_at
from foretype_context.edits.name_rules import RULES
from foretype_context.edits.owners import Owner

FOLLOWS = {
    "python-method": ("python", "class A:\n    def «width»(self):\n        return self.‹width›() + other.width()\n\n    def f(self):\n        return [self.‹width›() for x in width if x.width]\n"),
    "python-attribute of the constructor": ("python", "class A:\n    def __init__(self, width):\n        self.«width» = width\n\n    def f(self, other):\n        self.‹width› = 2\n        return lambda: self.‹width› + other.width\n"),
    "python-one of two": ("python", "class A:\n    def __init__(self, a, b):\n        self.«width», self.b = a, b\n\n    def f(self):\n        return f'{self.‹width›}'\n"),
    "python-of the class": ("python", "class A:\n    «width»: int = 1\n    half = ‹width› // 2\n\n    @classmethod\n    def f(cls):\n        width = 3\n        return cls.‹width› + A.‹width›\n\n\nA.‹width›\n"),
    "python-another class of the same": ("python", "class A:\n    def «width»(self):\n        return self.‹width›\n\n\nclass B:\n    def width(self):\n        return self.width\n"),
    "python-a class inside": ("python", "class A:\n    def «width»(self):\n        class B:\n            def f(self):\n                return self.width\n        return self.‹width›\n"),
    "python-a function inside with another self": ("python", "class A:\n    def «width»(self):\n        def g(self):\n            return self.width\n        return g(self.‹width›)\n"),
    "python-a subclass that has none": ("python", "class A:\n    def «width»(self):\n        return self.‹width›\n\n\nclass B(A):\n    def f(self):\n        return 1\n"),
    "javascript-method": ("javascript", "class A { «width»() { return 1; } f(o) { return [this.‹width›(), o.width(), () => this.‹width›]; } }\n"),
    "javascript-of the constructor": ("javascript", "class A { constructor(width) { this.«width» = width; } f() { this.‹width› = 2; return this.‹width›; } }\n"),
    "javascript-field": ("javascript", "class A { «width» = 1; f = () => this.‹width›; }\nclass B { width = 1; f() { return this.width; } }\n"),
    "javascript-hidden": ("javascript", "class A { #«width» = 1; f(o) { return this.#‹width› + o.#‹width› + o.width; } }\n"),
    "javascript-another this": ("javascript", "class A { «width» = 1; f() { g(function () { this.width; }); return { h() { this.width; }, i: this.‹width› }; } }\n"),
    "javascript-static": ("javascript", "class A { static «width» = 1; f(width) { return A.‹width› + width; } }\nA.‹width›;\nfunction g(A) { return A.width; }\n"),
    "typescript-field": ("typescript", "export class A { private readonly «width»: number; f(o: {width: number}) { return this.‹width› + o.width; } }\n"),
    "typescript-of a parameter": ("typescript", "class A { constructor(private «width»: number) { g(‹width›); } f() { return this.‹width›; } }\n"),
    "go-method": ("go", "package p\n\nfunc (t *T) «width»(o *U) int { return t.‹width›(o) + o.width() }\n\nfunc (u U) f() int { return u.width() }\n\nfunc (x T) g() int { return x.‹width›(nil) }\n"),
    "go-field": ("go", "package p\n\ntype T struct {\n\t«width» int\n}\n\ntype U struct {\n\twidth int\n}\n\nfunc f(t *T, u U) *T {\n\tt.‹width› = u.width\n\tv := &T{‹width›: 1}\n\tg(U{width: 2})\n\treturn h(v.‹width›, w.width)\n}\n"),
    "go-a variable that hides the receiver": ("go", "package p\n\nfunc (t *T) «width»() int {\n\tif t := u(); t != nil {\n\t\treturn t.width()\n\t}\n\treturn t.‹width›()\n}\n"),
    "java-field": ("java", "class A { private int «width»; void f(A a, B b) { this.‹width› = b.width + a.‹width›; ‹width›++; width(); } }\n"),
    "java-method": ("java", "class A { int «width»() { return this.‹width›() + width; } int f(A a, B b) { Runnable r = this::‹width›; return ‹width›() + b.width() + a.‹width›() + new A().‹width›(); } }\n"),
    "java-another class inside": ("java", "class A { int «width»() { return new B() { int f() { return width(); } }.f() + ‹width›(); } }\n"),
    "java-static": ("java", "class A { static int «width»() { return 1; } }\nclass B { int f() { return A.‹width›() + width(); } int width() { return 1; } }\n"),
    "java-local with var": ("java", "class A { int «width»() { var a = new A(); var b = f(); return a.‹width›() + b.width(); } }\n"),
    "rust-field": ("rust", "struct T { «width»: u8 }\nstruct U { width: u8 }\nimpl T { fn f(&self, t: &T, u: &U) -> T { g(u.width); T { ‹width›: self.‹width› + t.‹width› + self.width() } } }\nimpl Tr for T { fn h(&self) -> u8 { self.‹width› } }\n"),
    "rust-method": ("rust", "impl T { fn «width»(&self) -> u8 { self.width } fn f(&self, u: &U) -> u8 { self.‹width›() + u.width() + Self::‹width›(self) + T::‹width›(self) + U::width(u) } }\nimpl U { fn f(&self) { self.width() } }\n"),
    "rust-variant": ("rust", "enum E { «width», b }\nimpl E { fn f(&self) -> E { match self { Self::‹width› => E::b, E::b => E::‹width› } } }\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLLOWS)
def test_what_is_certainly_of_the_same_class_follows_and_nothing_else_does(name: str) -> None:
    language, marked = FOLLOWS[name]
    found, wanted, text = sites(marked, language)
    assert [text[: one.start] + "‹" + text[one.start :] for one in found] == [
        text[: one.start] + "‹" + text[one.start :] for one in wanted
    ]
    assert found == wanted and wanted


SILENT = {
    "a base of the file has it": ("python", "class B:\n    def width(self):\n        pass\n\n\nclass A(B):\n    def «width»(self):\n        return self.width()\n"),
    "a class that comes from it has it": ("python", "class A:\n    def «width»(self):\n        return self.width()\n\n\nclass B(A):\n    def width(self):\n        return 2\n"),
    "declared twice in a class": ("python", "class A:\n    @property\n    def «width»(self):\n        return self.width\n\n    @width.setter\n    def width(self, value):\n        pass\n"),
    "assigned in another method as well": ("python", "class A:\n    def f(self):\n        self.«width» = 1\n\n    def g(self):\n        self.width = 2\n        return self.width\n"),
    "assigned twice in the constructor": ("python", "class A:\n    def __init__(self):\n        self.«width» = 1\n        self.width = 2\n        self.f(self.width)\n"),
    "the class has the new name": ("python", "class A:\n    def __init__(self):\n        self.«width» = 1\n        self.size = 2\n        self.f(self.width)\n"),
    "of the new name there is a method": ("python", "class A:\n    def «width»(self):\n        return self.width()\n\n    def size(self):\n        pass\n"),
    "not its own object": ("python", "class A:\n    def f(self, other):\n        other.«width» = 1\n        return other.width + self.width\n"),
    "a static method's first": ("python", "class A:\n    @staticmethod\n    def __init__(self):\n        self.«width» = 1\n        return self.width\n"),
    "two of one name": ("typescript", "class A { «width»(a: string): void; width(a: any) { this.width(1); } }\n"),
    "one for reading and one for writing": ("javascript", "class A { get «width»() { return 1; } set width(v) { this.width = v; } }\n"),
    "of an interface": ("typescript", "interface A { «width»: number }\nfunction f(a: A) { return a.width; }\n"),
    "of an object": ("javascript", "const o = { «width»() { return this.width; } };\n"),
    "overloaded": ("java", "class A { int «width»() { return 1; } int width(int a) { return width(); } }\n"),
    "a base of the file has this method": ("java", "class B { int width() { return 1; } }\nclass A extends B { int «width»() { return this.width(); } }\n"),
    "a local has the new name": ("java", "class A { int «width»; int f(int size) { return width + size; } }\n"),
    "of a trait": ("rust", "impl Tr for T { fn «width»(&self) -> u8 { self.width() } }\n"),
    "the type has the new field": ("go", "package p\n\ntype T struct {\n\t«width», size int\n}\n\nfunc (t T) f() int { return t.width }\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", SILENT)
def test_where_a_member_may_be_another_nothing_is_said(name: str) -> None:
    language, marked = SILENT[name]
    assert sites(marked, language)[0] == []


def test_a_key_that_is_a_variable_at_once_is_left_alone() -> None:
    text = "struct T { «width»: u8 }\nfn f(width: u8) -> T { let T { width } = g(); T { width } }\n"
    assert sites(text, "rust")[0] == []


def test_a_class_is_known_by_its_place_and_a_type_whose_methods_stand_apart_by_its_name() -> None:
    for language, text, owner in (
        ("python", "class A:\n    def width(self): ...\n", Owner("A", 0)),
        ("java", "class B {}\nclass A<T> { int width; }\n", Owner("A", 11)),
        ("go", "package p\n\nfunc (t *A[K]) width() {}\n", Owner("A", -1)),
        ("rust", "impl<K> A<K> { fn width() {} }\n", Owner("A", -1)),
    ):
        tree, source = parsed(text, language)
        found = member_at(tree.root_node, source, language, text.index("width"))
        assert found is not None and found.owner == owner


def test_members_are_followed_where_variables_are() -> None:
    assert set(MEMBERS) == set(RULES)
