"""What other engines say for `bench engine`, on a tiny file."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from backend.tiny_gguf import write_tiny_gguf
from foretype_lab.processes import environment

PROMPTS = [[4, 5, 6, 7], [40, 30, 20], [9]]
TOKENS = 6


def said(model: Path, engine: str, *ends: int) -> list[list[int]]:
    pytest.importorskip("xllamacpp")
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "foretype_lab.fast_tier.other_answers",
            model,
            str(TOKENS),
            engine,
            *map(str, ends),
        ],
        input=json.dumps(PROMPTS),
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_llama_cpps_server_says_what_its_library_says_and_stops_where_it_does(tmp_path: Path) -> None:
    tiny = write_tiny_gguf(tmp_path / "tiny.gguf")
    whole = said(tiny, "llama.cpp")
    assert said(tiny, "server") == whole and all(len(answer) == TOKENS for answer in whole)
    end = whole[0][2]
    assert said(tiny, "server", end) == [answer[: answer.index(end)] if end in answer else answer for answer in whole]
