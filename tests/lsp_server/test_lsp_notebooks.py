"""Notebooks of an editor against a model that joins strings."""

import re

import pytest
from foretype_lsp.documents.documents import MAX_DOCUMENT_BYTES, ChangeResult, Documents, HeldText
from foretype_lsp.documents.notebook_messages import Array, Cell, CellChanges, Structure, TextContent
from foretype_lsp.documents.notebooks import Changed, Closed, Notebooks, Opened
from foretype_lsp.documents.positions import Encoding, Lines, Position
from foretype_lsp.messages import ContentChange, Identifier, Point, Range, TextDocument
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

URI = "file:///w/analysis.ipynb"
TEXTS = [
    "",
    "x = 1\n",
    "def f(a):\n    return a",
    "%matplotlib inline\n!ls\ny",
    "%%bash\nls",
    "é😀\r\nb",
    "\ud83d",
    "a\n\n",
]
KINDS = {"code": (2, "python"), "text": (1, "markdown"), "sql": (2, "sql")}
cells = st.tuples(st.sampled_from(list(KINDS)), st.sampled_from(TEXTS))
points = st.builds(Point, st.integers(0, 5), st.integers(0, 12))
changes = st.lists(
    st.builds(
        ContentChange,
        st.sampled_from(["", "a", "\n", "%", "%%bash\n", "😀", "\ude00", "!x", "?"]),
        st.none() | st.builds(Range, points, points),
    ),
    max_size=3,
)


def join(model, language):
    """What the joined text must be, the long way."""
    comment = {"python": "# ", "sql": "# ", "plaintext": "# ", "javascript": "// "}[language]
    blocks = []
    for kind, text in model:
        text = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)
        # Edits make other magics of `%%bash`; none of them is one whose cell stays Python.
        foreign = KINDS[kind][1] != language or (language == "python" and re.match(r"\s*%%\w", text) is not None)
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        if foreign:
            body = "".join(comment + line for line in text_lines(text))
        elif language == "python":
            body = "".join(magic_masked(line) for line in text_lines(text))
        else:
            body = text
        assert len(lines) == len(text_lines(text))
        blocks.append(f"{comment}%%{' [markdown]' if kind == 'text' else ''}\n{body}")
    return "\n\n".join(blocks)


def text_lines(text):
    lines, line = [], ""
    for index, char in enumerate(text):
        line += char
        if char == "\n" or (char == "\r" and text[index + 1 : index + 2] != "\n"):
            lines.append(line)
            line = ""
    return [*lines, line]


def magic_masked(line):
    from foretype_lsp.documents.cells import CellKind, shown  # its own test says what it does

    return shown(line, CellKind.CODE, "python")


class Editing(RuleBasedStateMachine):
    """Cells that come, go, move and change, as an editor tells of them."""

    @initialize(encoding=st.sampled_from(Encoding), model=st.lists(cells, max_size=4))
    def open(self, encoding, model):
        self.documents = Documents(encoding)
        self.notebooks = Notebooks(self.documents)
        self.count = 0
        self.model, made, texts = [], [], []
        for kind, text in model:
            cell, text_document = self.made(kind, text)
            made.append(cell)
            texts.append(text_document)
        self.seen = self.heard = None
        self.hear(self.notebooks.open(URI, made, texts))

    def made(self, kind, text, at=None):
        """A new cell, taken note of at `at` (the end)."""
        self.count += 1
        uri = f"vscode-notebook-cell:/w/analysis.ipynb#c{self.count}"
        number, language = KINDS[kind]
        self.model.insert(len(self.model) if at is None else at, (kind, uri, Lines(text, self.documents.encoding)))
        return Cell(uri, number), TextDocument(uri, text, language)

    def hear(self, events):
        """What is told of the document is whole: whoever follows it holds what is held."""
        for event in events:
            if isinstance(event, Closed):
                self.heard = None
            else:
                assert isinstance(event, Opened) == (self.heard is None)
                self.heard = event.held

    def held(self):
        (held,) = self.documents
        return held

    @rule(
        kind=st.sampled_from(list(KINDS)), text=st.sampled_from(TEXTS), at=st.integers(0, 6), delete=st.integers(0, 2)
    )
    def splice(self, kind, text, at, delete):
        at = min(at, len(self.model))
        delete = min(delete, len(self.model) - at)
        del self.model[at : at + delete]
        cell, text_document = self.made(kind, text, at)
        structure = Structure(Array(at, delete, [cell]), [text_document])
        self.hear(self.notebooks.change(URI, CellChanges(structure)))

    @rule(at=st.integers(0, 6), delete=st.integers(1, 3))
    def delete(self, at, delete):
        at = min(at, len(self.model))
        delete = min(delete, len(self.model) - at)
        del self.model[at : at + delete]
        self.hear(self.notebooks.change(URI, CellChanges(Structure(Array(at, delete)))))

    @rule(source=st.integers(0, 6), place=st.integers(0, 6))
    def move(self, source, place):
        """Moving is told as the part that differs: cells that were there come without a text."""
        if not self.model:
            return
        source, place = source % len(self.model), place % len(self.model)
        self.model.insert(place, self.model.pop(source))
        low, high = min(source, place), max(source, place)
        moved = [Cell(uri, KINDS[kind][0]) for kind, uri, _ in self.model[low : high + 1]]
        self.hear(self.notebooks.change(URI, CellChanges(Structure(Array(low, high - low + 1, moved)))))

    @rule(at=st.integers(0, 6), made=changes)
    def edit(self, at, made):
        if not self.model:
            return
        kind, uri, lines = self.model[at % len(self.model)]
        for change in made:
            if change.range is None:
                lines = Lines(change.text, lines.encoding)
            else:
                lines.replace(change.range.start.position, change.range.end.position, change.text)
        self.model[at % len(self.model)] = (kind, uri, lines)
        told = self.notebooks.change(URI, CellChanges(text_content=[TextContent(Identifier(uri, 7), made)]))
        self.hear(told)
        assert [type(event) for event in told] == [Changed]

    @rule()
    def run(self):
        """Running a cell changes no text."""
        data = [Cell(uri, KINDS[kind][0]) for kind, uri, _ in self.model[:1]]
        assert self.notebooks.change(URI, CellChanges(data=data)) == []

    @invariant()
    def the_joined_text_is_the_cells_and_every_position_is_where_its_character_is(self):
        held = self.held()
        assert self.heard is held
        written = [KINDS[kind][1] for kind, _, _ in self.model if kind != "text"]
        assert not written or held.document.language == max(written, key=written.count)
        model = [(kind, lines.text) for kind, _, lines in self.model]
        assert held.document.text == join(model, held.document.language)
        assert set(self.documents.cells) == {uri for _, uri, _ in self.model}
        for _, uri, lines in self.model:
            cell = self.documents.find(uri)
            assert cell.lines.text == lines.text
            well = lines.text.translate(dict.fromkeys(range(0xD800, 0xE000), 0xFFFD))
            for offset, char in enumerate(well):
                position = lines.position_at(offset)
                if lines.offset_at(position) == offset and char not in "%!?":
                    there = held.document.text[cell.offset_at(position)]
                    assert there == char or (there == "#" and cell.excluded_at(position))


Editing.TestCase.settings = settings(max_examples=60, stateful_step_count=12, deadline=None)
# A failure is made smaller for up to five minutes: within the usual limit it would look like a test that hangs.
TestEditing = pytest.mark.timeout(400)(Editing.TestCase)


def opened(*given, language="python"):
    documents = Documents()
    notebooks = Notebooks(documents)
    uris = [f"cell:{i}" for i in range(len(given))]
    texts = [TextDocument(uri, text, language) for uri, text in zip(uris, given, strict=True)]
    notebooks.open(URI, [Cell(uri) for uri in uris], texts)
    return documents, notebooks


def typing(uri, line, character, text):
    at = Point(line, character)
    return CellChanges(text_content=[TextContent(Identifier(uri), [ContentChange(text, Range(at, at))])])


def test_a_key_in_one_cell_is_one_edit_of_what_it_put_in():
    documents, notebooks = opened("a = 1", "b = ")
    (held,) = documents
    edits = []
    apply = held.document.apply
    held.document.apply = lambda made, version: (edits.extend(made), apply(made, version))
    (told,) = notebooks.change(URI, typing("cell:1", 0, 4, "(a)"))
    assert [edit.text for edit in edits] == ["(a)"]
    assert held.document.text == "# %%\na = 1\n\n# %%\nb = (a)"
    assert told == Changed(held, len(held.document.text))


def test_its_name_in_prompts_is_that_of_a_script():
    documents, _ = opened("a")
    (held,) = documents
    assert (held.document.path, held.file, held.document.language) == ("analysis.py", "/w/analysis.ipynb", "python")


def test_the_same_file_as_a_text_is_another_document():
    documents, notebooks = opened("a")
    documents.open(URI, '{"cells": []}', language="json")
    assert len(documents) == 2
    notebooks.close(URI)
    assert [held.document.text for held in documents] == ['{"cells": []}'] and not documents.cells


def test_another_kernel_makes_another_document():
    documents, notebooks = opened("let a = 1")
    cell, text = Cell("cell:0"), TextDocument("cell:0", "let a = 1", "javascript")
    told = notebooks.change(URI, CellChanges(Structure(Array(0, 1, [cell]), [text])))
    assert [type(event) for event in told] == [Closed, Opened]
    (held,) = documents
    assert (held.document.text, held.document.language) == ("// %%\nlet a = 1", "javascript")
    assert held.document.version > 0


@pytest.mark.parametrize(
    "impossible",
    [
        CellChanges(Structure(Array(0, 1, [Cell("never:opened")]))),
        CellChanges(Structure(Array(2, 1))),
        CellChanges(Structure(Array(0, 3))),
        CellChanges(text_content=[TextContent(Identifier("never:opened"), [])]),
    ],
)
def test_what_does_not_fit_loses_the_notebook_until_it_is_opened_again(impossible):
    documents, notebooks = opened("a", "b")
    assert notebooks.change(URI, impossible) is ChangeResult.LOST
    (held,) = documents
    assert held.lost and notebooks.change(URI, typing("cell:0", 0, 0, "x")) is ChangeResult.LOST
    told = notebooks.open(URI, [Cell("cell:0")], [TextDocument("cell:0", "a", "python")])
    assert [type(event) for event in told] == [Closed, Opened]
    assert not documents.find("cell:0").lost


def test_a_change_of_a_notebook_that_was_never_opened_is_ignored():
    assert Notebooks(Documents()).change(URI, CellChanges()) is ChangeResult.UNKNOWN


def test_a_notebook_that_grows_too_large_gets_no_suggestions_until_it_shrinks():
    documents, notebooks = opened("a")
    told = notebooks.change(URI, typing("cell:0", 0, 0, "x" * MAX_DOCUMENT_BYTES))
    assert [type(event) for event in told] == [Closed]
    assert "larger than" in documents.find("cell:0").excluded
    assert notebooks.change(URI, typing("cell:0", 0, 0, "x")) == []
    whole = CellChanges(text_content=[TextContent(Identifier("cell:0"), [ContentChange("b")])])
    assert [type(event) for event in notebooks.change(URI, whole)] == [Opened]
    assert documents.find("cell:0").document.text == "# %%\nb"


def test_a_cell_is_found_however_its_uri_is_escaped():
    documents, notebooks = Documents(), None
    notebooks = Notebooks(documents)
    uri = "vscode-notebook-cell:/w/a.ipynb#W0sZmlsZQ%3D%3D"
    notebooks.open(URI, [Cell(uri)], [TextDocument(uri, "a", "python")])
    cell = documents.find("vscode-notebook-cell:/w/a.ipynb#W0sZmlsZQ==")
    assert cell.offset_at(Position(0, 1)) == len("# %%\na") and not isinstance(cell, HeldText)
