"""Speculation on the real engine: the same text in float32, and more than one token a step where guessing is easy."""

from __future__ import annotations

from pathlib import Path

import pytest
from foretype_lab.engine_bench.options import EngineBenchOptions
from foretype_lab.engine_bench.speculation import measure_speculation

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_speculation_changes_nothing_and_gains_tokens(
    model_folder: Path, draft_folder: Path, tmp_path: Path
) -> None:
    lines = "".join(f"    self.value_{at % 3} = value_{at % 3}\n" for at in range(200))
    for at in range(4):
        (tmp_path / f"{at}.py").write_text(f"class Row{at}:\n{lines}")
        (tmp_path / f"{at}.js").write_text(f"class Row{at} {{\n{lines.replace('self', 'this')}}}\n")
    found = await measure_speculation(
        EngineBenchOptions(
            model=str(model_folder), draft=str(draft_folder), texts=(str(tmp_path),), samples=4, batches=(1, 4)
        )
    )
    methods = found["methods"]
    assert list(methods) == ["off", "ngram", "suffix", "draft_model"]
    if "lacking" in methods["suffix"]:  # its library is built from source
        assert "vllm-suffix" in methods.pop("suffix")["lacking"]
    for method, found in methods.items():
        assert list(found["batches"]) == ["1", "4"]
        for batch, run in found["batches"].items():
            assert set(run["languages"]) == {"python", "javascript"}
            assert (run["accepted_share"] is None) is (method == "off")
            for language in run["languages"].values():
                assert language["different"] == 0, (method, batch, run)
                assert language["equal"] + language["tie"] == (4 if batch == "1" else 8)
                if method == "off":
                    # Chunks are what is counted: a reader that was held up finds two steps in one.
                    assert 1 <= language["tokens_per_step"] < 1.1
                else:
                    assert language["tokens_per_step"] > 1
