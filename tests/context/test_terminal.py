"""What clients, folders and models say is shown on a terminal and never obeyed."""

import io
import json
import logging
import unicodedata

import pytest
from foretype_context.terminal import console, say, say_json
from foretype_context.text.plain import PlainFormatter, one_line, plain
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

HOSTILE = "a\x1b]0;owned\x07b\x9b31mc\u202ed\r\x08e[red]f[/red]:skull:\x7f\U000e0041"


def acts(text: str) -> bool:
    """Whether a character in it is a control or turns the writing, other than tabs and line ends."""
    turns = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    return any(
        (unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp") and one not in "\n\t")
        or unicodedata.bidirectional(one) in turns
        for one in text
    )


@given(st.text())
def test_no_text_at_all_can_act(text: str) -> None:
    assert not acts(plain(text)) and len(plain(text)) == len(text)
    assert "\n" not in one_line(text) and plain(plain(text)) == plain(text)


def test_ordinary_text_stays_as_it_is() -> None:
    text = "def f(ä: str) -> 'שלום':\n\treturn '👩\u200d💻 日本'\n"
    assert plain(text) == text


def test_a_line_a_table_and_a_title_are_plain(capsys: pytest.CaptureFixture[str]) -> None:
    say(HOSTILE)
    say(HOSTILE, err=True)
    out = io.StringIO()
    screen = console(file=out, width=200, force_terminal=True, color_system=None)
    table = Table(HOSTILE, title=HOSTILE)
    table.add_row(HOSTILE)
    screen.print(table, HOSTILE, Text(HOSTILE))
    captured = capsys.readouterr()
    for said in (captured.out, captured.err, out.getvalue()):
        assert not acts(said) and "[red]f[/red]:skull:" in said and "␛]0;owned" in said


@given(st.text())
def test_json_keeps_everything_and_acts_on_nothing(text: str) -> None:
    written = io.StringIO()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("typer.echo", lambda said: written.write(f"{said}\n"))
        say_json({"text": text, "path": "\udcff"}, indent=2)
    assert not acts(written.getvalue())
    assert json.loads(written.getvalue()) == {"text": text, "path": "\udcff"}


def test_a_log_line_is_plain() -> None:
    record = logging.LogRecord("n", logging.WARNING, "f", 1, "tenant %s", (HOSTILE,), None)
    assert not acts(PlainFormatter("%(message)s").format(record))
