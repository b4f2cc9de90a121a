"""Speculation on the real engine: the same text in float32, and more than one token a step where guessing is easy."""

from __future__ import annotations

from pathlib import Path

import pytest
from foretype_eval.engine.options import EngineBenchOptions
from foretype_eval.engine.speculation import measure_speculation

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_speculation_changes_nothing_and_gains_tokens(
    model_folder: Path, draft_folder: Path, tmp_path: Path
) -> None:
    lines = "".join(f"    self.value_{at % 3} = value_{at % 3}\n" for at in range(200))
    for at in range(4):
        (tmp_path / f"{at}.py").write_text(f"class Row{at}:\n{lines}")
        (tmp_path / f"{at}.js").write_text(f"class Row{at} {{\n{lines.replace('self', 'this')}}}\n")
    found = await measure_speculation(
        EngineBenchOptions(model=str(model_folder), draft=str(draft_folder), texts=(str(tmp_path),), samples=4)
    )
    methods = found["methods"]
    assert list(methods) == ["off", "ngram", "suffix", "draft_model"]
    if "lacking" in methods["suffix"]:  # its library is built from source
        assert "vllm-suffix" in methods.pop("suffix")["lacking"]
    for method, row in methods.items():
        assert set(row["languages"]) == {"python", "javascript"}
        for language in row["languages"].values():
            assert language["different"] == 0, (method, row)
            assert language["equal"] + language["tie"] == 4
            if method == "off":
                # Chunks are what is counted: a reader that was held up finds two steps in one.
                assert 1 <= language["tokens_per_step"] < 1.1
            else:
                assert language["tokens_per_step"] > 1
