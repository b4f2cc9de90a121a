import re

import pytest
from foretype_context.text.strings import join_surrogates, plain_line_ends
from foretype_lsp.documents.positions import Encoding, Lines, Position, index_at, split_lines, units
from hypothesis import example, given
from hypothesis import strategies as st

# Every way a line can end and not end, and every width a character can have in every encoding.
ALPHABET = [
    "a",
    "\t",
    " ",
    "\n",
    "\r",
    "\r\n",
    "\x0b",
    "\x0c",
    "\x85",
    "\u2028",
    "é",
    "语",
    "😀",
    "\ud83d",
    "\ude00",
    "\udcff",
]
texts = st.lists(st.sampled_from(ALPHABET), max_size=30).map(lambda parts: join_surrogates("".join(parts)))
encodings = st.sampled_from(Encoding)
positions = st.builds(Position, st.integers(-1, 12), st.integers(-2, 20))
edits = st.lists(st.tuples(positions, positions, texts), max_size=8)


class Reference:
    """A text in the client's own code units, edited the way the specification says, at any cost."""

    def __init__(self, text: str, encoding: Encoding) -> None:
        self.encoding = encoding
        self.units = self.encode(text)

    def encode(self, text: str) -> list[str]:
        if self.encoding is Encoding.UTF32:
            return list(text)
        if self.encoding is Encoding.UTF16:
            data = text.encode("utf-16-le", "surrogatepass")
            return [chr(int.from_bytes(data[i : i + 2], "little")) for i in range(0, len(data), 2)]
        out: list[str] = []
        for char in text:  # the first unit carries the character, the others are empty
            width = 1 if "\udc80" <= char <= "\udcff" else len(char.encode("utf-8", "surrogatepass"))
            out += [char] + [""] * (width - 1)
        return out

    def text(self) -> str:
        return join_surrogates("".join(self.units))

    def starts(self) -> list[int]:
        starts = [0]
        for i, unit in enumerate(self.units):
            if unit == "\n" or (unit == "\r" and self.units[i + 1 : i + 2] != ["\n"]):
                starts.append(i + 1)
        return starts

    def offset(self, position: Position) -> int:
        starts = self.starts()
        if position.line < 0:
            return 0
        if position.line >= len(starts):
            return len(self.units)
        start = starts[position.line]
        end = start
        while end < len(self.units) and self.units[end] not in ("\n", "\r"):
            end += 1
        offset = max(start, min(start + position.character, end))
        while self.units[offset : offset + 1] == [""]:
            offset -= 1
        return offset

    def replace(self, start: Position, end: Position, text: str) -> None:
        a, b = sorted((self.offset(start), self.offset(end)))
        self.units[a:b] = self.encode(text)
        self.units = self.encode(self.text())


@given(texts, encodings, edits)
@example("😀", Encoding.UTF16, [(Position(0, 1), Position(0, 2), "")])
@example("\ud83d", Encoding.UTF16, [(Position(0, 1), Position(0, 1), "\ude00")])
@example("a\rX\nb", Encoding.UTF16, [(Position(1, 0), Position(1, 1), "")])
@example("a\r\nb", Encoding.UTF8, [(Position(0, 1), Position(1, 0), "\r")])
def test_any_edits_in_any_encoding_keep_in_step_with_the_client(text, encoding, steps):
    lines, reference = Lines(text, encoding), Reference(text, encoding)
    whole = plain_line_ends(text)
    for start, end, inserted in steps:
        a, b, replacement = lines.replace(start, end, inserted)
        reference.replace(start, end, inserted)
        whole = whole[:a] + replacement + whole[b:]
        assert lines.text == plain_line_ends(reference.text()) == whole
        assert [lines.line(i) for i in range(len(lines))] == whole.split("\n")
        assert lines.chars == len(whole)
        assert len(lines) == len(reference.starts())


@given(texts, encodings, st.lists(st.integers(-2, 40), max_size=12))
def test_offset_to_position_and_back_is_the_same_place(text, encoding, offsets):
    lines = Lines(text, encoding)
    for offset in offsets:
        assert lines.offset_at(lines.position_at(offset)) == min(max(offset, 0), lines.chars)


@given(texts, encodings, positions)
def test_any_position_is_clamped_into_the_text_and_onto_its_line(text, encoding, position):
    lines = Lines(text, encoding)
    offset = lines.offset_at(position)
    assert 0 <= offset <= lines.chars
    line = lines.position_at(offset).line
    assert line == min(max(position.line, 0), len(lines) - 1)


@given(texts, encodings)
def test_units_and_index_agree(text, encoding):
    for index in range(len(text) + 1):
        assert index_at(text, units(text[:index], encoding), encoding) == index


@pytest.mark.parametrize(
    ("encoding", "character"), [(Encoding.UTF8, 5 + 4 + 3), (Encoding.UTF16, 5 + 2 + 1), (Encoding.UTF32, 5 + 1 + 1)]
)
def test_each_encoding_counts_an_emoji_and_a_cjk_character_its_own_way(encoding, character):
    line = 's = "😀语"'
    assert units(line[:7], encoding) == character
    assert index_at(line, character, encoding) == 7


def test_a_count_that_ends_inside_a_character_is_rounded_down():
    assert index_at("a😀b", 2, Encoding.UTF16) == 1
    assert index_at("a😀b", 3, Encoding.UTF8) == 1
    assert index_at("a\udcff😀b", 4, Encoding.UTF8) == 2


def test_a_byte_that_was_not_utf8_counts_as_one_byte():
    line = b"x\xff\xe9y".decode("utf-8", "surrogateescape")
    assert units(line, Encoding.UTF8) == 4
    assert index_at(line, 3, Encoding.UTF8) == 3


@given(texts)
def test_lines_end_where_lsp_says_and_nowhere_else(text):
    lines = split_lines(text)
    assert "".join(lines) == text
    assert len(lines) == len(re.findall(r"\r\n|\n|\r", text)) + 1
    assert all(re.fullmatch(r"[^\r\n]*(\r\n|\n|\r)", line) for line in lines[:-1])


def test_form_feed_and_unicode_separators_do_not_end_a_line():
    lines = Lines("a\x0cb\u2028c\x85d\ne", Encoding.UTF16)
    assert len(lines) == 2
    assert lines.offset_at(Position(1, 0)) == 8


@given(texts, encodings, st.lists(st.integers(0, 40), min_size=2, max_size=2))
def test_a_part_is_a_part_of_the_text(text, encoding, ends):
    lines = Lines(text, encoding)
    start, end = sorted(min(at, lines.chars) for at in ends)
    assert lines.part(start, end) == lines.text[start:end]


@pytest.mark.parametrize(("text", "ended"), [("a\r\nb\n", "x\r\ny"), ("a\nb\r\n", "x\ny"), ("", "x\ny")])
def test_what_is_put_in_as_it_is_ends_its_lines_as_the_text_does(text, ended):
    assert Lines(text).ended("x\ny") == ended
