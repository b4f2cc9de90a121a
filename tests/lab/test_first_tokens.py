"""`bench first-tokens` on a tiny file: every engine is asked the same, and none has seen it before."""

import asyncio
from pathlib import Path

import pytest
from backend.tiny_gguf import write_tiny_gguf
from foretype_backend.engines.embedded.libraries import LIBRARIES
from foretype_lab.peer import first_tokens


@pytest.mark.slow
def test_the_embedded_libraries_are_asked_in_turns(tmp_path: Path) -> None:
    for library in LIBRARIES:
        pytest.importorskip({"openvino": "openvino_genai", "llama.cpp": "xllamacpp"}[library])
    tiny = write_tiny_gguf(tmp_path / "tiny.gguf")
    result = asyncio.run(first_tokens.measure(tiny, rounds=1, ids=range(4, 500)))
    assert set(result["medians"]["new 100"]) >= {"ours", "llama.cpp, wheel"}
    assert all(value > 0 for row in result["medians"].values() for value in row.values())
    assert all("ours" not in row for row in result["ours_to"].values())
