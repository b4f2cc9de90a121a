"""Where a docstring and a body go, for what models really write; whatever they write, the document stays code."""

import ast
from functools import partial

import pytest
from foretype_lsp.chat.edits import documentation, gap_of, plain
from foretype_lsp.chat.targets import definition_at
from foretype_lsp.errors import ImpossibleError
from hypothesis import given
from hypothesis import strategies as st

CLASS = (
    "class A:\n    def f(self):\n\n    @cached\n    def g(self, x):\n        '''Old.'''\n        pass\n\n    y = 1\n"
)


def documented(text, answer, offset=0, language="python"):
    found = definition_at(text, language, offset)
    made = documentation(text, language, found, answer)
    return text[: made.start] + made.text + text[made.end :]


def completed(text, written, offset=0, language="python"):
    found = definition_at(text, language, offset, function=True)
    made = gap_of(text, language, found).filled(written)
    return text[: made.start] + made.text + text[made.end :]


@pytest.mark.parametrize(
    ("at", "name", "function"),
    [("class", "A", True), ("def f", "f", True), ("@cached", "g", True), ("pass", "g", True), ("y = 1", "A", False)],
)
def test_the_innermost_definition_is_found(at, name, function):
    found = definition_at(CLASS, "python", CLASS.index(at))
    assert found is not None and found.name == name and found.function == (name != "A")


def test_a_blank_line_belongs_to_what_it_is_indented_under():
    text = "class A:\n    def f(self):\n        \n    \n\ny = 1\n"
    in_function, in_class = text.index("        \n") + 8, text.index("    \n\n") + 4
    assert definition_at(text, "python", in_function).name == "f"
    assert definition_at(text, "python", in_class).name == "A"
    assert definition_at(text, "python", text.index("\ny")) is None
    assert definition_at("", "python", 0) is None and definition_at("def", "python", 99) is None


@pytest.mark.parametrize(
    ("language", "text", "after"),
    [
        ("javascript", "export const f = (a) => {\n};\n", "/**\n * Does.\n */\nexport const f = (a) => {\n};\n"),
        ("typescript", "  function f(): void {\n  }\n", "  /**\n   * Does.\n   */\n  function f(): void {\n  }\n"),
        ("rust", "fn f(x: i32) {\n}\n", "/// Does.\nfn f(x: i32) {\n}\n"),
        ("go", "func f(x int) {\n}\n", "// Does.\nfunc f(x int) {\n}\n"),
        ("ruby", "def f(x)\nend\n", "# Does.\ndef f(x)\nend\n"),
        ("lua", "local function f(x)\nend\n", "-- Does.\nlocal function f(x)\nend\n"),
        ("typescriptreact", "function F() {\n}\n", "/**\n * Does.\n */\nfunction F() {\n}\n"),
        ("shellscript", "f() {\n  echo\n}\n", "# Does.\nf() {\n  echo\n}\n"),
        ("c", "int f(int x) {\n}\n", "/**\n * Does.\n */\nint f(int x) {\n}\n"),
        ("cobol", "function f(x)\n  y\n", "# Does.\nfunction f(x)\n  y\n"),
        ("python", "@d\nclass A:\n\tx = 1\n", '@d\nclass A:\n\t"""Does."""\n\tx = 1\n'),
        ("python", "def f(\n    x,\n):\n    y\n", 'def f(\n    x,\n):\n    """Does."""\n    y\n'),
        ("python", "def f(x):", 'def f(x):\n    """Does."""'),
    ],
)
def test_documentation_has_the_languages_own_form(language, text, after):
    assert documented(text, "Does.", text.index("f" if "f" in text else "class"), language) == after


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("javascript", "/** Old. */\nfunction f() {\n}\n"),
        ("rust", "/// Old.\nfn f() {\n}\n"),
        ("go", "// Old.\nfunc f() {\n}\n"),
        ("python", "def f():\n    'Old.'\n"),
        ("cobol", "# Old.\nfunction f\n"),
    ],
)
def test_what_is_documented_is_known(language, text):
    assert definition_at(text, language, text.index("f(" if "f(" in text else "f\n")).documented


@pytest.mark.parametrize(
    ("answer", "lines"),
    [
        ("Does it.", ["Does it."]),
        ("```python\nDoes it.\n```", ["Does it."]),
        (
            'Here you go:\n\n```python\ndef f(x):\n    """Does it.\n\n    Well.\n    """\n    return x\n```\n',
            ["Does it.", "", "Well."],
        ),
        ("/**\n * Does it.\n *\n * @param x what\n */", ["Does it.", "", "@param x what"]),
        ("/// Does it.\n/// Well.", ["Does it.", "Well."]),
        ("# Does it.\ndef f(x):\n    return x", ["Does it."]),
        ("def f(x):\n    return x", []),
        ("", []),
        ('"""\n"""', []),
    ],
)
def test_an_answer_is_stripped_to_its_documentation(answer, lines):
    assert plain(answer) == lines


def test_what_would_end_the_comment_early_does_not():
    broken = documented("function f() {\n}\n", "Ends */ here. alert(1)", 0, "javascript")
    assert broken.count("*/") == 1 and broken.startswith("/**\n * Ends * / here")
    ast.parse(documented("def f():\n    pass\n", 'A """ and a \\ and an end "'))
    with pytest.raises(ImpossibleError, match="no documentation"):
        documented("def f():\n    pass\n", " \n")
    with pytest.raises(ImpossibleError, match="no room"):
        documented("def f(): pass\n", "Does.")


@given(st.text(max_size=200), st.sampled_from(["def f(x):\n    return x\n", CLASS, "class A:\n  pass\n"]))
def test_whatever_a_model_writes_as_documentation_python_stays_the_same_program(answer, text):
    text = text.replace("'''Old.'''\n        ", "").replace("def f(self):\n", "def f(self):\n        pass\n")
    try:
        after = documented(text, answer)
    except ImpossibleError:
        return
    before, now = ast.parse(text).body[0], ast.parse(after).body[0]
    assert [ast.dump(one) for one in now.body[1:]] == [ast.dump(one) for one in before.body]
    assert isinstance(now.body[0].value.value, str)


@given(st.text(alphabet="*/ \n#'\"`a\\", max_size=120))
def test_whatever_a_model_writes_other_languages_get_comments_alone(answer):
    for language, text in {"javascript": "f() {}\nfunction g() {\n}\n", "go": "func g() {\n}\n"}.items():
        try:
            after = documented(text, answer, text.index("g()"), language)
        except ImpossibleError:
            continue
        added = after.replace(text.splitlines(keepends=True)[-2], "", 1)
        inside = added[: added.rindex("*/")] if language == "javascript" else ""
        assert "*/" not in inside.replace("/**", "", 1)
        lines = after.splitlines()[: after.splitlines().index("func g() {")] if language == "go" else []
        assert all(line.startswith("//") for line in lines)


@pytest.mark.parametrize(
    ("language", "text", "after"),
    [
        ("python", "def f(x):\n", "def f(x):\n    BODY\n"),
        ("python", "def f(x):\n    \n\ny = 1\n", "def f(x):\n    BODY\n    \n\ny = 1\n"),
        ("python", "def f(x):\n    ...\n", "def f(x):\n    BODY\n"),
        ("python", "def f(x):\n    raise NotImplementedError('later')\n", "def f(x):\n    BODY\n"),
        ("python", "def f(x):\n    '''Doc.'''\n    pass\n", "def f(x):\n    '''Doc.'''\n    BODY\n"),
        ("python", "def f(x):\n    '''Doc.'''\n", "def f(x):\n    '''Doc.'''\n    BODY\n"),
        ("python", "def f(x):  # why\n    y = x\n\nz = 1\n", "def f(x):  # why\n    y = x\n    BODY\n\nz = 1\n"),
        ("python", "def f(x):  # why\n", "def f(x):  # why\n    BODY\n"),
        ("javascript", "function f(x) {}\n", "function f(x) {\n    BODY\n}\n"),
        ("javascript", "function f(x) {\n}\n", "function f(x) {\n    BODY\n}\n"),
        ("javascript", "function f(x) {\n\tconst y = x;\n}\n", "function f(x) {\n\tconst y = x;\n\tBODY\n}\n"),
        ("go", "\tfunc f(x int) {\n\t}\n", "\tfunc f(x int) {\n\t\tBODY\n\t}\n"),
        ("ruby", "def f(x)\nend\n", "def f(x)\n    BODY\nend\n"),
        ("lua", "local function f(x)\nend\n", "local function f(x)\n    BODY\nend\n"),
    ],
)
def test_a_body_goes_behind_what_is_there_and_in_the_place_of_a_placeholder(language, text, after):
    assert completed(text, "BODY", text.index("f"), language) == after


@given(st.text(alphabet="def f():\n {}x='\"\t#", max_size=80), st.integers(0, 90))
def test_no_text_and_no_place_is_a_fault(text, offset):
    for language in ("python", "javascript", "cobol"):
        found = definition_at(text, language, offset)
        if found is None:
            continue
        assert 0 <= found.start <= found.header_end <= len(text) and found.end <= len(text)
        for make in (partial(documentation, answer="Does."), gap_of):
            try:
                made = make(text, language, found)
            except ImpossibleError:
                continue
            assert 0 <= made.start <= made.end <= len(text)
