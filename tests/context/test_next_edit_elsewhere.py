"""What was changed in one file is followed in others where it is certain that they mean it, and nowhere else."""

import pytest
from context.typing_editor import Editor, changed, followed_in, next_in
from foretype_context.edits.evidence import Evidence
from foretype_context.edits.next_edit import SETTLED_S

PYTHON = "def width(a):\n    return a\n"
SCRIPT = "export function width(a) {\n  return a;\n}\n"
GO = "package shape\n\nfunc Width(a int) int {\n\treturn a\n}\n"


def renamed(text: str, language: str, old: str = "width", new: str = "size") -> Editor:
    editor = changed(text, old, new, language)
    editor.take_all()
    return editor


FOLLOWS = {
    "from an absolute module": ("python", "src/pkg/mod.py", "tests/test_mod.py", "from pkg.mod import other, width\n\n\ndef test():\n    assert width(1) == o.width\n"),
    "from a relative module": ("python", "pkg/mod.py", "pkg/sub/a.py", "from ..mod import width\n\nprint(width(1), 'width')\n"),
    "from a module beside it": ("python", "tools/mod.py", "tools/a.py", "from mod import width\n\nx = [width(y) for y in z]\n"),
    "an alias keeps its name": ("python", "pkg/mod.py", "a.py", "from pkg.mod import width as w\n\nwidth = w(1)\n"),
    "through the module": ("python", "pkg/mod.py", "a.py", "import pkg.mod\nfrom pkg import mod as m\n\npkg.mod.width(1)\nm.width(2)\nother.width(3)\n"),
    "a parameter of that name is another": ("python", "pkg/mod.py", "a.py", "from pkg.mod import width\n\n\ndef f(width_, g=width):\n    return (lambda width: width)(width_)\n"),
    "an import of a script": ("typescript", "src/shape.ts", "src/ui/a.ts", "import { width, other } from '../shape';\nexport const x = width(1) + o.width;\n"),
    "of its index": ("typescript", "src/shape/index.ts", "src/a.tsx", "import { width } from './shape';\nwidth(1);\n"),
    "with an ending": ("typescript", "src/shape.ts", "src/a.ts", "import { width } from './shape.js';\nwidth(1);\n"),
    "through all of it": ("javascript", "src/shape.js", "src/a.js", "import * as shape from './shape.js';\nshape.width(1);\n"),
    "required": ("javascript", "shape.js", "a.js", "const { width } = require('./shape');\nconst s = require('./shape');\ns.width(width(1));\n"),
    "of the same package": ("go", "shape/a.go", "shape/b.go", "package shape\n\nvar x = width(1) + y.width\n"),
    "of another package": ("go", "pkg/shape/a.go", "b.go", "package main\n\nimport \"example.com/m/pkg/shape\"\n\nvar x = shape.width(1)\n"),
}  # fmt: skip
TEXTS = {"python": PYTHON, "javascript": SCRIPT, "typescript": SCRIPT, "go": GO.replace("Width", "width")}

JAVA = "package a.b;\n\npublic class Shape {\n  public int width() { return 1; }\n  private int depth;\n}\n"
OF_CLASSES = {
    "a method behind a variable": ("java", JAVA, "width", "src/main/java/a/b/Shape.java", "src/test/java/a/b/ShapeTest.java", "package a.b;\n\nclass ShapeTest {\n  int f(Shape s, Form o) { return s.‹width›() + o.width() + new Shape().‹width›() + width(); }\n}\n"),
    "a method of an imported class": ("java", JAVA, "width", "java/a/b/Shape.java", "java/c/D.java", "package c;\n\nimport a.b.Shape;\n\nclass D {\n  private Shape s;\n  int f() { var t = new Shape(); return s.‹width›() + t.‹width›() + g().width(); }\n}\n"),
    "another class of that name": ("java", JAVA, "width", "java/a/b/Shape.java", "java/c/D.java", "package c;\n\nimport x.Shape;\n\nclass D {\n  int f(Shape s) { return s.width(); }\n}\n"),
    "another package": ("java", JAVA, "width", "java/a/b/Shape.java", "java/c/D.java", "package c;\n\nclass D {\n  int f(Shape s) { return s.width(); }\n}\n"),
    "a method of a class that another import hides": ("java", JAVA, "width", "java/a/b/Shape.java", "java/a/b/D.java", "package a.b;\n\nimport x.Shape;\n\nclass D {\n  int f(Shape s) { return s.width(); }\n}\n"),
    "a class of its own": ("java", JAVA, "width", "java/a/b/Shape.java", "java/a/b/D.java", "package a.b;\n\nclass D {\n  static class Shape { int width() { return 1; } }\n  int f(Shape s) { return s.width(); }\n}\n"),
    "a class that comes from it": ("java", JAVA, "width", "java/a/b/Shape.java", "java/a/b/D.java", "package a.b;\n\nclass D extends Shape {\n  public int width() { return 2; }\n  int f(Shape s) { return s.width(); }\n}\n"),
    "a class": ("java", JAVA, "Shape", "java/a/b/Shape.java", "java/c/D.java", "package c;\n\nimport a.b.‹Shape›;\n\nclass D extends ‹Shape› {\n  ‹Shape› f(x.Shape s) { return new ‹Shape›(); }\n}\n"),
    "a class of the same package": ("java", JAVA, "Shape", "java/a/b/Shape.java", "java/a/b/D.java", "package a.b;\n\nclass D {\n  List<‹Shape›> f(int Shapes) { return ‹Shape›.of(); }\n}\n"),
    "a class that another import hides": ("java", JAVA, "Shape", "java/a/b/Shape.java", "java/a/b/D.java", "package a.b;\n\nimport x.Shape;\n\nclass D {\n  Shape s;\n}\n"),
    "a field of the package": ("go", "package p\n\ntype T struct {\n\twidth int\n}\n", "width", "p/a.go", "p/b.go", "package p\n\nfunc (t *T) f(u *U) int {\n\treturn t.‹width› + u.width\n}\n\nvar x = T{‹width›: 1}\n"),
    "a method of another package's type": ("go", "package p\n\nfunc (t *T) width() {}\n", "width", "p/a.go", "q/b.go", "package q\n\nfunc (t *T) f() {\n\tt.width()\n}\n"),
    "a type of a script": ("typescript", "export interface Shape { a: string }\n", "Shape", "src/shape.ts", "src/a.ts", "import type { ‹Shape› } from './shape';\nconst a: ‹Shape› = b as o.Shape;\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_CLASSES)
def test_members_and_types_are_followed_where_the_class_is_certainly_theirs(name: str) -> None:
    language, origin, old, path, other, marked = OF_CLASSES[name]
    elsewhere = renamed(origin, language, old, "Fresh").elsewhere(path)
    assert elsewhere is not None and elsewhere.token == old
    text = marked.replace("‹", "").replace("›", "")
    assert followed_in(elsewhere, other, text, language) == marked.replace(f"‹{old}›", "Fresh")


def test_what_a_class_hides_leads_nowhere_else() -> None:
    assert renamed(JAVA, "java", "depth", "Fresh").elsewhere("java/a/b/Shape.java") is None


@pytest.mark.parametrize("name", FOLLOWS)
def test_a_rename_is_followed_where_the_name_is_imported(name: str) -> None:
    language, path, other, text = FOLLOWS[name]
    editor = renamed(TEXTS[language], language)
    elsewhere = editor.elsewhere(path)
    assert elsewhere is not None and elsewhere.evidence is Evidence.DECLARATION and elsewhere.token == "width"
    kind = "typescriptreact" if other.endswith("x") else language
    after = followed_in(elsewhere, other, text, kind)
    assert after != text
    kept = ("'width'", "o.width", "y.width", "other.width(3)", "lambda width: width", "width_", "width = w(1)")
    expected = text
    for index, one in enumerate(kept):
        expected = expected.replace(one, f"\0{index}\0")
    expected = expected.replace("width", "size")
    for index, one in enumerate(kept):
        expected = expected.replace(f"\0{index}\0", one)
    assert after == expected


SILENT = {
    "no import": ("python", "pkg/mod.py", "a.py", "width(1)\n"),
    "another module": ("python", "pkg/mod.py", "a.py", "from pkg.other import width\n\nwidth(1)\n"),
    "another package of the same name": ("python", "services/a/app/mod.py", "services/b/app/a.py", "from app.mod import width\n\nwidth(1)\n"),
    "everything, nobody knows from where": ("python", "pkg/mod.py", "a.py", "from pkg.mod import *\n\nwidth(1)\n"),
    "handed on": ("python", "pkg/mod.py", "pkg/__init__.py", "from pkg.mod import width\n"),
    "handed on by a list": ("python", "pkg/mod.py", "pkg/api.py", "from pkg.mod import width\n\n__all__ = ['width']\n"),
    "declared again": ("python", "pkg/mod.py", "a.py", "from pkg.mod import width\n\nwidth = width or 1\n"),
    "imported twice": ("python", "pkg/mod.py", "a.py", "from pkg.mod import width\nfrom pkg.old import width\n\nwidth(1)\n"),
    "the new name is taken": ("python", "pkg/mod.py", "a.py", "from pkg.mod import width\n\nsize = width(1)\n"),
    "the new name is taken where it would be used": ("python", "pkg/mod.py", "a.py", "from pkg.mod import width\n\n\ndef f(size):\n    return width(size)\n"),
    "the module is somebody else's name": ("python", "pkg/mod.py", "a.py", "from pkg import mod\n\n\ndef f(mod):\n    return mod.width\n"),
    "a string of code": ("python", "pkg/mod.py", "a.py", "import pkg.mod\n\neval('pkg.mod.width(1)')\n"),
    "exported again": ("typescript", "src/shape.ts", "src/a.ts", "import { width } from './shape';\nexport { width };\n"),
    "exported from there": ("typescript", "src/shape.ts", "src/a.ts", "export { width } from './shape';\n"),
    "of a package": ("typescript", "src/shape.ts", "src/a.ts", "import { width } from '@app/shape';\nwidth(1);\n"),
    "of another folder": ("typescript", "src/shape.ts", "src/ui/a.ts", "import { width } from './shape';\nwidth(1);\n"),
    "what a program wrote": ("typescript", "src/shape.ts", "src/a.ts", "// Code generated by x. DO NOT EDIT.\nimport { width } from './shape';\nwidth(1);\n"),
    "another package of Go": ("go", "pkg/shape/a.go", "b.go", "package main\n\nimport \"example.com/m/pkg/form\"\n\nvar x = form.width(1)\n"),
    "another language": ("go", "shape/a.go", "shape/a.py", "width(1)\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", SILENT)
def test_where_another_file_may_mean_something_else_nothing_is_said(name: str) -> None:
    language, path, other, text = SILENT[name]
    elsewhere = renamed(TEXTS[language], language).elsewhere(path)
    assert elsewhere is not None
    assert followed_in(elsewhere, other, text, "python" if other.endswith(".py") else language) == text


def test_a_local_name_leads_nowhere_else() -> None:
    assert renamed("def f(width):\n    return width\n", "python").elsewhere("pkg/mod.py") is None


def test_nothing_is_said_of_other_files_while_somebody_types_or_when_nothing_was_renamed() -> None:
    editor = Editor(PYTHON)
    assert editor.elsewhere("mod.py") is None
    editor.replace("width", "size")
    assert editor.elsewhere("mod.py", wait_s=SETTLED_S / 2) is None
    assert editor.elsewhere("mod.py") is not None


def test_what_was_refused_in_another_file_is_not_offered_there_again() -> None:
    editor = renamed(PYTHON, "python")
    elsewhere = editor.elsewhere("pkg/mod.py")
    text = "import pkg.mod\n\npkg.mod.width(1)\n"
    assert elsewhere is not None
    one = next_in(elsewhere, "a.py", text, "python")
    editor.edits.refused(text, one.edit)
    assert next_in(elsewhere, "a.py", text, "python") is None


def test_like_edits_are_followed_in_other_files_of_the_language() -> None:
    editor = Editor("def f(a, b):\n    print(a.x)\n    print(b.x)\n")
    for _ in range(2):
        editor.replace("print", "log.info")
    elsewhere = editor.elsewhere("mod.py")
    assert elsewhere is not None and elsewhere.evidence is Evidence.LIKE_EDITS and elsewhere.token == "print"
    text = "# print(c.x)\nprint(c.x)\nprint('c')\n"
    assert followed_in(elsewhere, "a.py", text, "python") == "# print(c.x)\nlog.info(c.x)\nprint('c')\n"
    assert followed_in(elsewhere, "a.js", "print(c.x)\n", "javascript") == "print(c.x)\n"
