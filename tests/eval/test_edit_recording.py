"""Recordings: the two formats, offsets, and what is wrong with a file told by entry and field."""

import json
from pathlib import Path
from typing import Any

import pytest
from foretype_context.syntax.document import Document, Edit
from foretype_eval.errors import RecordingError
from foretype_eval.replay.edit_events import Changed, Event, Loaded, Moved
from foretype_eval.replay.edit_recording import load_recording
from foretype_lab.prefill.typed_commits import recording_of
from git_repo import history
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Entry = dict[str, Any]

HEADER: list[Entry] = [
    {"kind": "header", "documentType": "workspaceRecording@1.0", "time": 1000, "repoRootUri": "file:///d"},
    {"kind": "documentEncountered", "id": 0, "time": 1000, "relativePath": "src\\a.ts"},
    {"kind": "setContent", "id": 0, "time": 1000, "content": "one\ntwo\n", "v": 1},
]


def written(folder: Path, entries: list[Entry], *, lines: bool) -> Path:
    path = folder / ("session.jsonl" if lines else "session.recording.w.json")
    text = "\n".join(map(json.dumps, entries)) if lines else json.dumps({"log": entries, "nextUserEdit": None})
    path.write_text(text, "utf-8")
    return path


def texts_after(events: tuple[Event, ...]) -> dict[str, str]:
    documents: dict[str, Document] = {}
    for event in events:
        if isinstance(event, Loaded):
            documents[event.path] = Document(event.path, event.text, language="plaintext")
        elif isinstance(event, Changed):
            documents[event.path].apply(event.edits, 1)
    return {path: document.text for path, document in documents.items()}


@pytest.mark.parametrize("lines", [False, True])
def test_both_formats_give_the_same_events(tmp_path: Path, lines: bool) -> None:
    change = {"kind": "changed", "id": 0, "time": 1250, "edit": [[0, 3, "1"], [4, 7, "2"]], "v": 2}
    caret = {"kind": "selectionChanged", "id": 0, "time": 1252, "selection": [[1, 1], [5, 5]]}
    recording = load_recording(written(tmp_path, [*HEADER, change, caret], lines=lines))
    assert recording.events == (
        Loaded(1.0, "src/a.ts", "one\ntwo\n"),
        Changed(1.25, "src/a.ts", (Edit(0, 3, "1"), Edit(2, 5, "2"))),
        Moved(1.252, "src/a.ts", 1),
    )
    assert texts_after(recording.events) == {"src/a.ts": "1\n2\n"}


def test_what_was_written_down_late_happened_when_the_entry_before_it_did(tmp_path: Path) -> None:
    change = {"kind": "changed", "id": 0, "time": 900, "edit": [[0, 0, "x"]], "v": 2}
    assert load_recording(written(tmp_path, [*HEADER, change], lines=True)).events[-1].time_s == 1.0


def test_stored_content_comes_back_by_its_name(tmp_path: Path) -> None:
    entries: list[Entry] = [
        {"kind": "storeContent", "id": 0, "time": 1001, "contentId": "k"},
        {"kind": "changed", "id": 0, "time": 1002, "edit": [[0, 8, "gone"]]},
        {"kind": "restoreContent", "id": 0, "time": 1003, "contentId": "k"},
    ]
    recording = load_recording(written(tmp_path, HEADER + entries, lines=False))
    assert texts_after(recording.events) == {"src/a.ts": "one\ntwo\n"}


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60, deadline=None
)
@given(data=st.data())
def test_utf16_offsets_become_characters(tmp_path: Path, data: st.DataObject) -> None:
    letters = st.sampled_from(["a", "\n", "é", "漢", "🙂", "𝒳"])
    live = data.draw(st.text(letters, max_size=20))
    entries: list[Entry] = [HEADER[1], {"kind": "setContent", "id": 0, "time": 0, "content": live}]
    for _ in range(data.draw(st.integers(1, 5))):
        start = data.draw(st.integers(0, len(live)))
        end = data.draw(st.integers(start, len(live)))
        new = data.draw(st.text(letters, max_size=4))
        units = [len(live[:at].encode("utf-16-le")) // 2 for at in (start, end)]
        entries.append({"kind": "changed", "id": 0, "time": 1, "edit": [[*units, new]]})
        live = live[:start] + new + live[end:]
    recording = load_recording(written(tmp_path, entries, lines=True))
    assert texts_after(recording.events) == {"src/a.ts": live}


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"time": 1, "id": 0}, "`kind`: expected a string"),
        ({"kind": "changed", "id": 0, "time": 2, "edit": "x"}, "`edit`: expected an array"),
        ({"kind": "changed", "id": 0, "time": 2, "edit": [[0, 1]]}, "`edit[0]`: expected [start, end, text]"),
        ({"kind": "changed", "id": 0, "time": 2, "edit": [[0, 1, None]]}, "`edit[0][2]`: expected a string"),
        (
            {"kind": "changed", "id": 0, "time": 2, "edit": [[0, 99, ""]]},
            "`edit[0][1]`: expected an offset in a text of 8",
        ),
        ({"kind": "changed", "id": 0, "time": 2, "edit": [[-1, 0, ""]]}, "`edit[0][0]`: expected an offset"),
        ({"kind": "changed", "id": 0, "time": 2, "edit": [[4, 5, ""], [0, 1, ""]]}, "`edit[1]`: expected ascending"),
        ({"kind": "changed", "id": 7, "time": 2, "edit": []}, "`id`: expected a document that was encountered before"),
        ({"kind": "changed", "id": 0, "time": True, "edit": []}, "`time`: expected a whole number"),
        ({"kind": "setContent", "id": 0, "time": 2}, "`content`: expected a string"),
        ({"kind": "restoreContent", "id": 0, "time": 2, "contentId": "?"}, "`contentId`: expected a content"),
        ({"kind": "selectionChanged", "id": 0, "time": 2, "selection": [[0]]}, "`selection[0]`: expected [start, end]"),
        ({"kind": "selectionChanged", "id": 0, "time": 2, "selection": [[0, -3]]}, "`selection[0]`: expected two"),
    ],
)
def test_a_malformed_entry_is_named_by_line_and_field(tmp_path: Path, entry: Entry, told: str) -> None:
    with pytest.raises(RecordingError) as caught:
        load_recording(written(tmp_path, [*HEADER, entry], lines=True))
    assert "line 4" in str(caught.value) and told in str(caught.value)
    with pytest.raises(RecordingError, match=r"log\[3\]"):
        load_recording(written(tmp_path, [*HEADER, entry], lines=False))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'{"kind": "header"}\n{"kind', "line 2: not JSON"),
        (b"[1, 2]", "expected an object"),
        (b'{"log": 3}', "field `log`: expected an array"),
        (b'{"log": [3]}', r"log\[0\]: expected an object"),
        (b"\x80\x00garbage", "line 1: not JSON"),
        (b"", "nothing was changed"),
        (b'{"log": []}', "nothing was changed"),
        (b'{"kind": "header"}', "nothing was changed.*kinds found: header"),
    ],
)
def test_a_file_that_is_no_recording_is_told(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    with pytest.raises(RecordingError, match=told):
        load_recording(path)


def test_commits_are_typed_oldest_first_and_end_as_they_were_made(tmp_path: Path) -> None:
    versions = [
        "import os\n\n\ndef f():\n    return 1\n",
        "import os\nimport sys\n\n\ndef f(x):\n    if x:\n        return 2\n    return 1\n",
        "import os\n\n\ndef g(x):\n    return x\n",
    ]
    history(tmp_path, "a.py", *versions)
    recording = recording_of(tmp_path, 3)
    assert recording == recording_of(tmp_path, 3)
    assert recording.events[0] == Loaded(recording.events[0].time_s, "a.py", "\n")
    times = [event.time_s for event in recording.events]
    assert times == sorted(times)
    assert texts_after(recording.events) == {"a.py": versions[-1]}
    typed = "".join(
        e.text for event in recording.events if isinstance(event, Changed) for e in event.edits if len(e.text) == 1
    )
    assert "def g(x):" in typed and "importsys" in typed.replace(" ", "")


def test_a_repository_without_such_files_is_told(tmp_path: Path) -> None:
    history(tmp_path, "a.txt", "x\n")
    with pytest.raises(RecordingError, match="none of which adds a line"):
        recording_of(tmp_path, 5)
