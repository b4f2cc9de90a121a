"""The pure parts of the sub-commands: the demo's developer, its screen, and the doctor's judgement."""

import stat
from pathlib import Path
from typing import Any

import pytest
from foretype_client.commands import doctor as doctor_module
from foretype_client.commands.demo_screen import DemoFigures, frame
from foretype_client.commands.demo_typist import Typist, region_of
from foretype_client.commands.doctor_probe import judge
from foretype_client.errors import InputError
from foretype_client.flow.suggestion import FlowState, FlowStatus, Origin, Suggestion
from foretype_client.locations import parse_location
from foretype_context.syntax.document import Document
from hypothesis import given
from hypothesis import strategies as st
from pasting import AWKWARD, pasted
from rich.console import Console

SOURCE = (
    'import os\n\n\ndef first():\n    pass\n\n\ndef add(a, b):\n    """Adds."""\n    total = a + b\n    return total\n'
)
STATUS = FlowStatus(FlowState.READY, "", 5, 3, 1, 1, 0, 0, 0.5, 12.0, 20.0, {}, 0)


def suggested(text: str, replaces: int = 0) -> Suggestion:
    return Suggestion(
        id="s", text=text, replaces=replaces, source=Origin.NETWORK, timings_ms={"shown": 20.0, "ttft": 9.0}
    )


def typist(text: str, start: int, end: int) -> Typist:
    return Typist(Document("file:///a.py", text, path="a.py"), start, end)


class TestTypist:
    @given(st.text("ab \n\r\t(é😀", max_size=60), st.data())
    def test_whatever_is_suggested_the_file_ends_up_as_it_was(self, text: str, data: st.DataObject) -> None:
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, len(text)))
        original = Document("file:///a.py", text, path="a.py").snapshot().text
        developer = typist(text, start, end)
        while developer.expected:
            words = developer.expected[: data.draw(st.integers(0, 9))] + data.draw(st.text("ab (", max_size=3))
            step = developer.next_step(suggested(words, data.draw(st.integers(0, 1))))
            assert step is not None and step.text
            developer.apply(step, 0.0)
        assert developer.next_step(None) is None
        assert developer.snapshot.text == original
        assert developer.typed_chars + developer.accepted_chars == end - start

    @pytest.mark.parametrize(
        ("suggestion", "wanted"),
        [
            ("total = a + b", "total = a + b"),
            ("total = a + b\n    return total", "total = a + b\n    return total"),
            ("total = a - b", "total = a "),
            ("total = add(a)", "total = "),
            ("totally", ""),
            ("tot", ""),
            ("t", ""),
            ("x", ""),
            ("", ""),
        ],
    )
    def test_only_what_stood_there_is_accepted_and_never_half_a_word(self, suggestion: str, wanted: str) -> None:
        start = SOURCE.index("total = a + b")
        assert typist(SOURCE, start, len(SOURCE)).wanted(suggested(suggestion)).rstrip() == wanted.rstrip()

    def test_a_suggestion_that_replaces_text_is_not_accepted(self) -> None:
        start = SOURCE.index("total = a + b")
        assert typist(SOURCE, start, len(SOURCE)).wanted(suggested("total = a + b", replaces=1)) == ""

    def test_a_new_line_brings_its_indentation_with_one_key(self) -> None:
        start = SOURCE.index("\n    return total")
        step = typist(SOURCE, start, len(SOURCE)).next_step(None)
        assert step.text == "\n    "

    def test_it_types_a_functions_body_to_the_end_of_a_block(self) -> None:
        start, end = region_of(SOURCE, 5)
        assert SOURCE[start:end] == "    total = a + b\n    return total"

    @given(st.text("def f():\n \"'x", max_size=80), st.integers(1, 50))
    def test_there_is_a_region_in_every_text(self, text: str, keys: int) -> None:
        start, end = region_of(text, keys)
        if text.strip():
            assert 0 <= start <= len(text)
            assert end <= len(text)


class TestScreen:
    @pytest.mark.parametrize("ghost", ["return total", "total = a + b\n    return total", None])
    def test_the_ghost_stands_at_the_cursor_and_line_numbers_stay_the_files(self, ghost: str | None) -> None:
        start = SOURCE.index("    total")
        developer = typist(SOURCE, start, len(SOURCE) - 1)
        suggestion = None if ghost is None else suggested(ghost)
        console = Console(width=80, record=True, file=open("/dev/null", "w"), force_terminal=True)  # noqa: SIM115
        figures = DemoFigures()
        if suggestion is not None:
            figures.add(suggestion)
        console.print(frame("t", developer.snapshot, developer.offset, suggestion, figures, STATUS, 3, 4))
        console.file.close()
        shown = console.export_text()
        assert "│ 3/7 characters accepted\n" in shown and "\n3 requests │ " in shown, "no figure is cut at 80 columns"
        assert " 8 def add(a, b):" in shown
        if ghost is not None:
            assert f"▏{ghost.partition(chr(10))[0]}" in shown
            assert all(line in shown for line in ghost.split("\n"))


class TestProbe:
    @pytest.mark.parametrize("written", ["a + b", "a+b\n\ndef x", "sum((a, b))", "(a + b)  # add"])
    def test_code_that_fits_the_hole_is_good(self, written: str) -> None:
        assert judge(written).good

    @pytest.mark.parametrize(
        "written",
        [
            "a + b<|endoftext|>",
            "<fim_middle>a",
            "<PRE> a",
            "a</s>",
            "```python\na + b\n```",
            "Sure! Here is the code",
            "<｜fim▁end｜>",
        ],
    )
    def test_control_tokens_and_chat_are_a_wrong_template(self, written: str) -> None:
        result = judge(written)
        assert result.broken
        assert "grammar" in result.remedy

    def test_what_the_grammar_calls_a_chat_answer_is_one(self) -> None:
        assert judge("Gladly", ("Gladly",)).broken and not judge("Gladly").broken

    @pytest.mark.parametrize("written", ["", "\n", "1, 1, , ", "0", "x" + "(" * 2000])
    def test_other_garbage_is_a_weak_model_and_has_a_remedy(self, written: str) -> None:
        result = judge(written)
        assert not result.good
        assert not result.broken
        assert result.remedy


class TestLocation:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [("a.py:1:2", ("a.py", 1, 2)), ("C:\\a:b.py:03:1", ("C:\\a:b.py", 3, 1)), ("::1:1", (":", 1, 1))],
    )
    def test_the_last_two_numbers_count(self, text: str, expected: tuple[str, int, int]) -> None:
        location = parse_location(text)
        assert (str(location.path), location.line, location.column) == expected

    @given(st.text(max_size=20))
    def test_anything_is_a_location_or_bad_input(self, text: str) -> None:
        try:
            location = parse_location(text)
        except InputError as error:
            assert "FILE:LINE:COL" in str(error)
        else:
            assert location.line >= 0


def test_a_registered_check_that_cannot_be_imported_is_told_and_takes_no_other_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Point:
        def __init__(self, name: str, load: Any) -> None:
            self.name, self.load = name, load

    def missing() -> Any:
        raise ImportError("No module named 'faiss'")

    points = [
        Point("good", lambda: lambda: [("embedder", False, "none", "do this"), ("index", True, "1 folder", "")]),
        Point("broken", missing),
    ]
    monkeypatch.setattr(doctor_module, "entry_points", lambda group: points)
    found = [(one.name, one.status, one.remedy) for one in doctor_module._registered_checks()]
    assert found == [
        ("broken", "warn", "pip install 'foretype[broken]'"),
        ("embedder", "warn", "do this"),
        ("index", "ok", ""),
    ]


def test_in_a_terminal_a_long_finding_is_folded_beside_its_name_and_elsewhere_it_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = " ".join(["reason"] * 20)
    finding = doctor_module.Finding(
        name="gateway", status=doctor_module.FindingVerdict.FAIL, detail=words, remedy=f"do {words}"
    )
    doctor_module._print([finding])
    assert capsys.readouterr().out == f"fail gateway          {words}\n{'':<21} → do {words}\n"
    monkeypatch.setattr(doctor_module, "console", lambda: Console(width=80, force_terminal=True, color_system=None))
    doctor_module._print([finding])
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("fail gateway          reason") and len(shown) == 4
    assert all(line.startswith(" " * 22) for line in shown[1:]) and max(map(len, shown[:-1])) <= 80
    assert shown[-1].strip() == f"→ do {words}", "what is pasted has no ends of lines that are not its own"


def test_the_doctor_s_command_can_be_pasted(tmp_path: Path) -> None:
    folder = tmp_path / AWKWARD
    folder.mkdir()
    folder.chmod(0o777)
    (finding,) = doctor_module._privacy("state", folder)
    pasted(finding.remedy, tmp_path)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
