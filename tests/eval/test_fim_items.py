import gzip
from pathlib import Path
from typing import Any

import pytest
from foretype_eval.errors import EvalError
from foretype_eval.fim.items import StopRule, load_items


def test_a_line_hole_is_shown_as_an_empty_line(write_rows: Any, single_line_rows: Any) -> None:
    items = load_items(write_rows("lines.jsonl.gz", single_line_rows))
    for item, row in zip(items, single_line_rows, strict=True):
        assert item.prefix.endswith("\n")
        assert item.suffix.startswith("\n")
        assert "\n" not in item.reference
        assert item.filled(item.reference) == row["prompt"] + row["canonical_solution"] + row["suffix"]
        assert item.stop is StopRule.FIRST_LINE


def test_items_of_one_problem_are_one_cluster(write_rows: Any, single_line_rows: Any) -> None:
    items = load_items(write_rows("lines.jsonl", single_line_rows))
    assert {item.cluster for item in items} == {"Ours/0", "Ours/1", "Ours/2"}


def test_a_random_span_is_left_exactly_where_it_was_cut(write_rows: Any, random_span_rows: Any) -> None:
    items = load_items(write_rows("spans.jsonl", random_span_rows))
    for item, row in zip(items, random_span_rows, strict=True):
        assert (item.prefix, item.reference, item.suffix) == (row["prompt"], row["canonical_solution"], row["suffix"])
        assert item.stop is StopRule.END_OF_MIDDLE


def test_safim_is_read_with_its_cases_and_languages(write_rows: Any, safim_rows: Any) -> None:
    first, second, java = load_items(write_rows("safim.jsonl", safim_rows))
    assert [program.stdin for program in first.programs("total = 6")] == ["3\n", "0\n"]
    assert first.programs("total = 6")[0].source == "n = int(input())\ntotal = 6\nprint(total)\n"
    assert first.prefix.startswith("# add the numbers")
    assert first.cluster != second.cluster
    assert java.language == "java"
    assert java.programs("return 1;") == []


def test_santacoder_lines_get_the_newline_that_the_file_lacks(write_rows: Any, santacoder_rows: Any) -> None:
    python, script = load_items(write_rows("fim.jsonl", santacoder_rows))
    assert (
        python.filled(python.reference)
        == "def triple(value):\n    # three times\n    result = value * 3\n    return result\n"
    )
    assert len(python.programs(python.reference)) == 1
    assert script.brace_only
    assert not python.brace_only
    assert script.programs("}") == []


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b"[]\n", b"{}\n", b"not json\n", b"\xff\xfe\n", b'{"task_id": 3, "entry_point": "x"}\n']
)
def test_a_file_that_is_no_benchmark_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(content)
    with pytest.raises(EvalError, match=r"data\.jsonl"):
        load_items(path)


def test_a_missing_field_is_named_with_its_line(write_rows: Any, single_line_rows: Any) -> None:
    del single_line_rows[2]["suffix"]
    with pytest.raises(EvalError, match=r"lines.jsonl:3: field 'suffix' is missing"):
        load_items(write_rows("lines.jsonl", single_line_rows))


def test_a_torn_gzip_is_refused(write_rows: Any, single_line_rows: Any, tmp_path: Path) -> None:
    whole = write_rows("lines.jsonl.gz", single_line_rows).read_bytes()
    torn = tmp_path / "torn.jsonl.gz"
    torn.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(EvalError, match=r"torn.jsonl.gz"):
        load_items(torn)
    (tmp_path / "not.jsonl.gz").write_bytes(b"{}")
    with pytest.raises(EvalError):
        load_items(tmp_path / "not.jsonl.gz")
    with pytest.raises(EvalError, match="absent"):
        load_items(tmp_path / "absent.jsonl")
    assert gzip.decompress(whole)


def test_ids_that_occur_twice_are_refused(write_rows: Any, single_line_rows: Any) -> None:
    with pytest.raises(EvalError, match="same id"):
        load_items(write_rows("lines.jsonl", [*single_line_rows, single_line_rows[0]]))


def test_a_prompt_without_its_hole_is_refused(write_rows: Any, safim_rows: Any) -> None:
    safim_rows[0]["prompt"] = "n = 1"
    with pytest.raises(EvalError, match="placeholder"):
        load_items(write_rows("safim.jsonl", safim_rows))
