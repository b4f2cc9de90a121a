"""A declaration got another name: the places that follow, and all that keeps us silent. `«»` is what was renamed, `‹›` what is to follow."""

import re

import pytest
from foretype_context.edits.bursts import Bursts
from foretype_context.edits.keywords import keywords_renamed
from foretype_context.edits.name_rules import RULES
from foretype_context.edits.rename_sites import Rename, is_free, rename_in, sites_of
from foretype_context.edits.walking import OCCURRENCES_MAX
from foretype_context.syntax.document import Edit
from foretype_context.syntax.languages import LANGUAGES
from foretype_context.syntax.parsing import parse_bounded
from hypothesis import given
from hypothesis import strategies as st

NEW = "size"


def sites(marked: str, language: str, old: str = "width") -> tuple[list[Edit], list[Edit], str]:
    """What is offered, what the marks say, and the text after the rename."""
    plain = re.sub("[‹›]", "", marked)
    before = re.sub("[«»]", "", plain)
    at = plain.index("«")
    text = before[:at] + NEW + before[at + len(old) :]
    rename = rename_in(_typed(before, at, old))
    assert rename is not None and rename == Rename(old, NEW, at)
    source = text.encode()
    tree = parse_bounded(source, language)
    wanted = list[Edit]()
    for marks, mark in enumerate(re.finditer("[«»‹›]", marked)):
        if mark[0] == "‹":
            start = mark.start() - marks
            start += (len(NEW) - len(old)) if start > at else 0
            wanted.append(Edit(start, start + len(old), NEW))
    free = is_free(rename, tree.root_node, source, text, language)
    return sites_of(rename, tree.root_node, source, text, language) if free else [], wanted, text


def _typed(before: str, at: int, old: str):
    bursts, text = Bursts(before), before
    for offset in range(len(old)):
        text = before[:at] + old[: len(old) - 1 - offset] + before[at + len(old) :]
        end = at + len(old) - offset
        bursts.changed([Edit(end - 1, end, "")], text, 0.0)
    for offset, character in enumerate(NEW):
        text = text[: at + offset] + character + text[at + offset :]
        bursts.changed([Edit(at + offset, at + offset, character)], text, 0.0)
    burst = bursts.open
    assert burst is not None
    return burst


FOLLOWS = {
    "python-parameter": ("python", "def f(«width», y=1):\n    z = ‹width› + 1\n    return [‹width› for a in z if a > ‹width›], o.width, g(width=3)\n"),
    "python-inner function has its own": ("python", "def f(«width»):\n    def g(width):\n        return width\n    return g(‹width›)\n"),
    "python-class inside sees it": ("python", "def f(«width»):\n    class A:\n        q = ‹width›\n    return lambda: ‹width›\n"),
    "python-local": ("python", "def f(a):\n    «width» = a\n    print(f'{‹width›!r} width')\n    return ‹width›\n\ndef g(width):\n    return width\n"),
    "python-function": ("python", "def «width»(a):\n    return a\n\n\nclass A:\n    width = 1\n\n    def f(self):\n        return ‹width›(self.width)\n"),
    "python-loop": ("python", "for i, «width» in enumerate(xs):\n    print(‹width›)\n"),
    "python-with": ("python", "with open(p) as «width»:\n    ‹width›.read()\n"),
    "python-keyword value": ("python", "def f(«width»):\n    return g(width=‹width›)\n"),
    "python-words beyond ASCII": ("python", "# grüße ✓ 😀\ndef f(«width»):\n    é = '😀'; return ‹width›\n"),
    "javascript-block": ("javascript", "function f(a) { let «width» = a; { let width = 2; width; } for (const y of a) { g(‹width›); } o.width; }\n"),
    "javascript-var is the function's": ("javascript", "function f(a) { if (a) { var «width» = 1; } return ‹width›; }\n"),
    "javascript-pattern": ("javascript", "const f = ({ a: [«width»], ...r }) => ‹width› + r.width;\n"),
    "typescript-parameter": ("typescript", "function f(«width»: number, o?: {width: number}): number { return o.width + ‹width›; }\n"),
    "typescriptreact-attribute": ("typescriptreact", "function F(«width»: number) { return <div width={‹width›}>{‹width›} width</div>; }\n"),
    "go-parameter": ("go", "package p\n\nfunc f(«width» int) int {\n\tif width := 3; width > 0 {\n\t\treturn width\n\t}\n\treturn ‹width› + s.width\n}\n"),
    "go-loop": ("go", "package p\n\nfunc f(ws []int) {\n\tfor _, «width» := range ws {\n\t\tg(‹width›)\n\t}\n}\n"),
    "go-loop over what is called so": ("go", "package p\n\nfunc f(«width» []int) {\n\tfor _, width := range ‹width› {\n\t\tg(width)\n\t}\n}\n"),
    "go-loop that sets it": ("go", "package p\n\nfunc f(ws []int) {\n\t«width» := g()\n\tfor _, ‹width› = range ws {\n\t\tg(‹width›)\n\t}\n}\n"),
    "go-value in a literal": ("go", "package p\n\nfunc f(«width» int) []int {\n\treturn []int{‹width›, T{a: ‹width›}.b}\n}\n"),
    "rust-loop over what is called so": ("rust", "fn f(«width»: Vec<u8>) { for width in ‹width›.iter() { g(width); } }\n"),
    "go-local": ("go", "package p\n\nfunc f() int {\n\t«width», err := g()\n\tgo func() { h(‹width›) }()\n\treturn ‹width›\n}\n"),
    "java-parameter": ("java", "class A { int width; int f(int «width») { this.width = ‹width›; return g(s -> s + ‹width›) + width(); } }\n"),
    "java-parameter of a field's name": ("java", "class A { int width; void setWidth(int «width») { this.width = ‹width›; } }\n"),
    "python-parameter of a member's name": ("python", "class A:\n    width = 1\n\n    def f(self, «width»):\n        return ‹width›\n"),
    "python-one of another function's name": ("python", "def g(width):\n    def width():\n        pass\n\n\ndef f(«width»):\n    return ‹width›\n\n\nh = lambda width: width\n"),
    "java-loop": ("java", "class A { void f() { for (int «width» = 0; ‹width› < 3; ‹width›++) { g(‹width›); } } }\n"),
    "rust-parameter": ("rust", "fn f(«width»: usize) -> usize { let c = |x| x + ‹width›; s.width + c(‹width›) }\n"),
    "rust-type": ("rust", "pub struct «width» { a: u8 }\nimpl ‹width› { fn new() -> ‹width› { ‹width› { a: 1 } } }\nfn f(w: &‹width›) { ‹width›::new(); o.width(); }\n"),
    "rust-a module of a variable's name": ("rust", "fn f(«width»: usize) { width::g(‹width›); }\n"),
    "typescript-interface": ("typescript", "export interface «width» { width: ‹width›; a: o.width }\nfunction f(a: ‹width›[], b: Map<string, ‹width›>): ‹width› | null { return a as ‹width›; }\n"),
    "typescript-alias": ("typescript", "type «width» = 'a' | 'b';\nclass A implements B<‹width›> { c: ‹width›; }\n"),
    "typescript-class": ("typescript", "class «width» { static a(): ‹width› { return new ‹width›(); } }\nclass B extends ‹width› {}\nconst c: typeof ‹width› = ‹width›;\n"),
    "typescript-class of a function": ("typescript", "function f() { class «width» {} return new ‹width›(); }\nnew width();\n"),
    "java-class": ("java", "class «width» { ‹width›(int a) {} static ‹width› of() { return new ‹width›(1); } int width() { return width(); } }\nclass B extends ‹width› { ‹width›.C c = ‹width›.of(); List<‹width›> d; Class e = ‹width›.class; }\n"),
    "java-class inside": ("java", "class A { static class «width» { ‹width›() {} } ‹width› a = new ‹width›(); b.width c; }\n"),
    "rust-macros": ("rust", 'fn f(«width»: usize) { println!("{}", ‹width›, width = 1); assert_eq!(g(‹width›), o.width + [‹width›, width::a]); vec![T { width: ‹width› }]; }\n'),
    "rust-names in format strings": ("rust", 'fn f(«width»: usize) { println!("{‹width›} {{width}} {‹width›:>4} {0} width", g(‹width›)); let s = "{width}"; panic!("{width}", width = 1); }\n'),
    "rust-names in format strings of inner variables": ("rust", 'fn f(«width»: usize) { { let width = 1; print!("{width}"); } print!("{‹width›}"); }\nfn g(width: usize) { print!("{width}"); }\n'),
    "python-keywords of calls": ("python", "def f(«width», y=1):\n    return ‹width› + y\n\n\nf(‹width›=3, y=width)\nf(width)\ng(width=1)\nh(f)(width=2)\nf(size=1, width=2)\n"),
    "python-keywords of a parameter with a default": ("python", "def f(a, *, «width»: int = 1):\n    return ‹width›\n\n\ndef g():\n    return f(1, ‹width›=2)\n"),
    "python-keywords of methods": ("python", "class A:\n    def f(self, «width»):\n        return ‹width›\n\n    def g(self):\n        return self.f(‹width›=1)\n"),
    "python-keywords of constructors": ("python", "class A:\n    def __init__(self, «width»):\n        self.a = ‹width›\n\n\na = A(‹width›=1)\nb = B(width=1)\n"),
    "python-keywords of what is decorated": ("python", "@d\ndef f(«width»):\n    return ‹width›\n\n\nf(width=1)\n"),
    "rust-type in a macro": ("rust", "struct «width»;\nfn f() { assert!(‹width›::new(x) == o::width); }\n"),
    "rust-local": ("rust", "fn f(a: usize) -> usize { let mut «width» = a; ‹width› += 1; ‹width› }\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLLOWS)
def test_references_follow_their_declaration_and_nothing_else_does(name: str) -> None:
    language, marked = FOLLOWS[name]
    found, wanted, _ = sites(marked, language)
    assert found == wanted and wanted


SILENT = {
    "its value is another of that name": ("python", "def f():\n    «width» = width(1)\n    return width\n"),
    "its value is another of that name, too": ("java", "class A { void f() { T «width» = width.g(); h(width); } }\n"),
    "a type parameter": ("typescript", "class «width» {}\nfunction f<width>(a: width) { return a; }\n"),
    "a type parameter, too": ("java", "class «width» { <width> width f(width a) { return a; } }\n"),
    "used before it is there": ("javascript", "function f() { g(width); var «width» = 1; return width; }\n"),
    "a module has it too": ("python", "width = 1\n\n\ndef f(«width»):\n    return width\n"),
    "an import has it too": ("python", "from a import width\n\n\ndef f(«width»):\n    return width\n"),
    "another function around has it too": ("python", "def f(width):\n    return [width for «width» in g(width) if width]\n"),
    "a function beside has that name": ("python", "class A:\n    def f(self, «width»):\n        return width\n\n\ndef width():\n    pass\n"),
    "a constant above has it too": ("typescript", "const width = q('width');\nexport const f = ws.find((«width») => ws.includes(width.type));\n"),
    "a variable of the function above has it too": ("javascript", "function f() { { var width = 1; } return g((«width») => width); }\n"),
    "something imported has it too": ("javascript", "import { width } from 'a';\nfunction f(«width») { return width; }\n"),
    "a package has it too": ("go", "package p\n\nimport \"a/width\"\n\nfunc f(«width» int) int {\n\treturn g(width)\n}\n"),
    "a function of the file has it too": ("go", "package p\n\nfunc width() int { return 1 }\n\nfunc f(«width» int) int {\n\treturn g(width)\n}\n"),
    "a lambda's in a method that has it too": ("java", "class A { int f(int width) { return g(«width» -> width + 1); } }\n"),
    "a closure's in a function that has it too": ("rust", "fn f(width: usize) -> usize { g(|«width»| width + 1) }\n"),
    "a use, not a declaration": ("python", "def f(width):\n    g(«width»)\n    h(width)\n"),
    "declared twice": ("python", "def f(a):\n    «width» = a\n    print(width)\n    width = 2\n"),
    "global": ("python", "«width» = 1\ndef f():\n    global width\n    width = 2\n"),
    "the new name is taken": ("python", "def f(«width», a):\n    size = a\n    return width + size\n"),
    "the new name is used from outside": ("python", "size = 1\ndef f(«width»):\n    return width + size\n"),
    "an import": ("python", "import a as «width»\nwidth.f()\n"),
    "a pattern of match": ("python", "match x:\n    case «width»:\n        print(width)\n"),
    "re-exported": ("javascript", "const «width» = 1;\nexport { width };\nf(width);\n"),
    "imported": ("javascript", "import { a as «width» } from 'b';\nf(width);\n"),
    "no declaration": ("javascript", "for («width» of xs) { f(width); }\n"),
    "keys of a composite literal": ("go", "package p\n\nfunc f(«width» int) T {\n\treturn T{width: width}\n}\n"),
    "a macro's tokens": ("rust", 'fn f(«width»: usize) { html!("{}", width); }\n'),
    "a macro's tokens that may declare it": ("rust", "fn f(«width»: usize) { vec![g(|width| width)]; width; }\n"),
    "a macro's key that may be a variable": ("rust", "fn f(«width»: usize) { vec![T { width }]; width; }\n"),
    "a macro that is written here": ("rust", "macro_rules! m { () => { width } }\nfn f(«width»: usize) { width; }\n"),
    "two variables of one name": ("rust", "fn f(a: usize) -> usize { let «width» = a; let width = width + 1; width }\n"),
    "a language without rules": ("ruby", "def f(«width»)\n  width + 1\nend\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", SILENT)
def test_where_it_is_not_certain_nothing_is_said(name: str) -> None:
    language, marked = SILENT[name]
    assert sites(marked, language)[0] == []


def test_what_is_no_parameter_has_no_keywords() -> None:
    source = b"width = 1\nf(width=1)\nwidth(width=2)\nlambda width: width\n"
    tree = parse_bounded(source, "python")
    assert tree is not None
    for start in range(len(source)):
        assert keywords_renamed(tree.root_node, source, "python", start, old="width", new="size") == []


def test_a_key_of_the_same_name_keeps_its_name() -> None:
    for language, text in (
        ("javascript", "function f(«width») { return { width, a: 1 }; }\n"),
        ("rust", "fn f(«width»: usize) -> P { P { width } }\n"),
    ):
        found, _, _ = sites(text, language)
        assert [edit.text for edit in found] == [f"width: {NEW}"]


def test_a_key_that_has_the_new_name_is_written_once_in_rust() -> None:
    for field, written in (
        (f"{NEW}: width", NEW),
        (f"{NEW} :  width ", NEW),
        (f"a: 1, {NEW}: width, b: 2", NEW),
        ("other: width", "width"),
        (f"{NEW}: width + 1", "width"),
    ):
        found, _, text = sites(f"fn f(«width»: usize) -> P {{ P {{ {field} }} }}\n", "rust")
        [edit] = found
        whole = written == NEW
        assert edit.text == NEW and text[edit.start : edit.end].startswith(NEW) == whole, field
        assert text[edit.start : edit.end].endswith("width")


def test_what_is_named_very_often_is_not_followed() -> None:
    body = "    g(width)\n" * (OCCURRENCES_MAX - 2)
    assert sites(f"def f(«width»):\n{body}", "python")[0]
    assert sites(f"def f(«width»):\n{body}    g(width)\n    g(width)\n    g(width)\n", "python")[0] == []


def test_a_file_that_does_not_parse_is_right_or_silent() -> None:
    found, _, text = sites(
        "def f(«width»):\n    x = (width +\n    return width\n\ndef g(width):\n    return width\n", "python"
    )
    assert all(text[edit.start : edit.end] == "width" and edit.start < text.index("def g") for edit in found)


@pytest.mark.parametrize(
    ("before", "edit", "rename"),
    [
        ("count = 1", Edit(5, 5, "er"), Rename("count", "counter", 0)),
        ("count = 1", Edit(0, 5, "total"), Rename("count", "total", 0)),
        ("a_count = 1", Edit(2, 2, "b_"), Rename("a_count", "a_b_count", 0)),
        ("count = 1", Edit(0, 5, ""), None),
        ("count = 1", Edit(0, 5, "_"), None),
        ("count = 1", Edit(5, 5, " x"), None),
        ("count = 1", Edit(8, 9, "2"), None),
        ("f(a)", Edit(2, 3, "a, b"), None),
        (f"{'n' * 70} = 1", Edit(70, 70, "a"), None),
    ],
)
def test_a_rename_is_one_whole_name_for_another(before: str, edit: Edit, rename: Rename | None) -> None:
    bursts = Bursts(before)
    bursts.changed([edit], before[: edit.start] + edit.text + before[edit.end :], 0.0)
    burst = bursts.open
    assert burst is not None
    assert rename_in(burst) == rename


def test_what_was_accepted_or_pasted_renames_nothing() -> None:
    bursts = Bursts("count = 1")
    bursts.changed([Edit(0, 5, "total")], "total = 1", 0.0, accepted=True)
    assert bursts.open is not None and rename_in(bursts.open) is None


def test_every_language_that_is_followed_is_one_that_we_parse() -> None:
    assert set(RULES) <= set(LANGUAGES)


_CODE = st.lists(
    st.sampled_from(
        [
            "def f(width):",
            "width",
            "size",
            "\n",
            "    ",
            "(",
            ")",
            "=",
            "{",
            "}",
            "let ",
            "for ",
            " in ",
            "é",
            "class A:",
            ",",
            ":",
        ]
    ),
    max_size=30,
).map("".join)


@given(_CODE, st.sampled_from(sorted(RULES)), st.integers(0, 200))
def test_any_text_gives_places_that_hold_the_old_name_or_nothing(code: str, language: str, at: int) -> None:
    places = [match.start() for match in re.finditer(r"\bsize\b", code)]
    start = places[at % len(places)] if places else 0
    source = code.encode()
    tree = parse_bounded(source, language)
    for edit in sites_of(Rename("width", "size", start), tree.root_node, source, code, language):
        assert code[edit.start : edit.end] == "width"
