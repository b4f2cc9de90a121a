import pytest
from foretype_retrieval.chunks import SHOWN_CHARS, _Text, chunk_text
from foretype_retrieval.definitions import ChunkKind
from hypothesis import given, settings
from hypothesis import strategies as st

SOURCES = {
    "python": (
        "@wraps(f)\ndef area(x):\n    return x\n\nclass Shape:\n    def edge(self): pass\n\nLIMIT = 3\n",
        "area Shape edge LIMIT",
    ),
    "javascript": ("export const area = (x) => { return x }\nclass Shape { edge() { return 1 } }\n", "area Shape edge"),
    "typescript": (
        "export interface Shape { edge(): void }\nexport function area(x: number) { return x }\n",
        "Shape edge area",
    ),
    "go": (
        "package a\ntype Shape struct {\n\tx int\n}\nfunc (s *Shape) Edge() int { return 1 }\nconst Limit = 3\n",
        "Shape Edge Limit",
    ),
    "rust": ("impl Shape { fn edge(&self) -> i32 { 1 } }\npub struct Box { a: i32 }\n", "Shape edge Box"),
    "java": ("public class Shape { public Shape() {} int edge(int x) { return x; } }\n", "Shape Shape edge"),
    "c": ("struct shape { int a; };\nstatic int *edge(struct shape *x) { return 0; }\n", "shape edge"),
    "cpp": ("namespace n { struct Shape { int a; }; int Shape::edge(int *p) { return 1; } }\n", "n Shape edge"),
    "csharp": ("namespace N { public class Shape { public int Edge() { return 1; } } }\n", "N Shape Edge"),
    "ruby": ("class Shape\n  def edge\n    1\n  end\nend\n", "Shape edge"),
    "php": ("<?php class Shape { function edge() { return 1; } } function area() {}\n", "Shape edge area"),
    "shellscript": ("edge() { echo 1; }\n", "edge"),
    "lua": (
        "function Shape:edge(x)\n  return 1\nend\nlocal function area() end\nM.round = function(x) return x end\n",
        "edge area",
    ),
}


@pytest.mark.parametrize("language", SOURCES)
def test_every_language_gives_its_definitions_in_order(language: str) -> None:
    text, names = SOURCES[language]
    assert [chunk.name for chunk in chunk_text(text, language)] == names.split()


def test_a_decorated_function_is_shown_with_its_decorator() -> None:
    chunk = chunk_text(SOURCES["python"][0], "python")[0]
    assert chunk.shown.startswith("@wraps(f)\ndef area(x):") and chunk.start == 0 and chunk.line == 0


def test_a_class_is_shown_by_the_signatures_of_its_members() -> None:
    text = 'class Box:\n    """A box."""\n\n    size = 3\n\n    def open(self, key):\n        secret = key\n        return secret\n\n    def close(self):\n        hidden = 1\n'
    shown = chunk_text(text, "python")[0].shown
    assert shown == 'class Box:\n    """A box."""\n    size = 3\n    def open(self, key):\n    def close(self):\n'


def test_long_documentation_is_cut_so_that_the_body_is_seen() -> None:
    documentation = "\n".join(f"    documentation line {number} with many words in it" for number in range(60))
    text = f'def long(x):\n    """Head.\n{documentation}\n    """\n    return compute(x)\n'
    shown = chunk_text(text, "python")[0].shown
    assert "Head." in shown and "return compute(x)" in shown and len(shown) <= SHOWN_CHARS


def test_a_language_without_grammar_is_cut_at_the_margin() -> None:
    text = "".join(f"fun part{number}() {{\n    a\n    b\n    c\n}}\n\n" for number in range(5))
    chunks = chunk_text(text, "plaintext")
    assert len(chunks) == 5 and all(chunk.kind is ChunkKind.WINDOW for chunk in chunks)
    assert [text[chunk.start : chunk.end] for chunk in chunks] == [chunk.indexed for chunk in chunks]


def test_spans_are_characters_not_bytes() -> None:
    text = "# naïve 漢字 🙂\ndef found():\n    return '🙂'\n"
    chunk = chunk_text(text, "python")[0]
    assert text[chunk.start : chunk.end] == "def found():\n    return '🙂'"


@pytest.mark.parametrize("language", ["python", "javascript", "cpp", "rust", "plaintext"])
@pytest.mark.parametrize(
    "hostile", ["(" * 200_000, "[{(" * 60_000, "a" * 400_000, "if x:\n " * 40_000, "\n" * 300_000, "\0" * 1000]
)
def test_adversarial_source_gives_bounded_chunks(language: str, hostile: str) -> None:
    chunks = chunk_text(hostile, language)
    assert all(len(chunk.shown) <= SHOWN_CHARS + 1 for chunk in chunks)
    assert sum(len(chunk.indexed) for chunk in chunks) <= len(hostile) + 1


@settings(max_examples=80, deadline=None)
@given(st.text(alphabet="def clas():\n\t {}[]\"'#x=é🙂\r\0", max_size=200), st.sampled_from(sorted(SOURCES)))
def test_any_text_gives_ordered_spans_inside_it(text: str, language: str) -> None:
    chunks = chunk_text(text, language)
    assert all(0 <= chunk.start <= chunk.end <= len(text) for chunk in chunks)
    assert [chunk.start for chunk in chunks] == sorted(chunk.start for chunk in chunks)
    assert chunk_text(text, language) == chunks


class _Counted(bytes):
    """Counts the bytes that are cut out of it."""

    cut = 0

    def __getitem__(self, place):
        found = super().__getitem__(place)
        _Counted.cut += len(found)
        return found


def test_places_in_a_large_file_that_is_not_ascii_are_counted_from_their_lines() -> None:
    text = "".join(f"def größe_{at}(é): return '🙂' * é  # {'ü' * (at % 7)}\n\n" for at in range(2_000))
    data = _Counted(text.encode())
    source = _Text(text, data)
    places = range(0, len(data), 97)
    assert [source.offset(at) for at in places] == [len(bytes(data)[:at].decode("utf-8", "replace")) for at in places]
    assert _Counted.cut < 2 * len(data)
    names = [chunk.name for chunk in chunk_text(text, "python")]
    assert names == [f"größe_{at}" for at in range(2_000)]


def test_lines_of_windows_are_those_of_an_editor() -> None:
    text = "-- one\n\f\n-- two\x85 \u2028\n" + "select 1;\n" * 6 + "\ncreate view needle as\n  select 1;\n"
    chunks = chunk_text(text, "plaintext")
    assert [chunk.line for chunk in chunks] == [text.count("\n", 0, chunk.start) for chunk in chunks] == [0, 10]
