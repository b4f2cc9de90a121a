"""`foretype bench fleet` before the scripted engine: every way brings its first tokens, and nothing stays behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psutil
from fleet.support import ENGINE, FORETYPE, LIMIT_S, until


def test_each_way_to_a_replica_is_measured_and_nothing_is_left_behind(tmp_path: Path) -> None:
    own = tmp_path / "engine.py"  # another test's may run beside it
    own.write_text(f"import runpy\nrunpy.run_path({str(ENGINE)!r}, run_name='__main__')\n")
    engine = f"{sys.executable} {own}"
    command = [str(FORETYPE), "bench", "fleet", "--engine", engine, "--keys", "10", "--kills", "2", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    ways = {"direct", "gateway and directory", "haproxy", "ray's proxy"} - set(result["missing"])
    assert set(result["first_token_ms"]) == ways and set(result["added_ms"]) == ways - {"direct"}
    assert {row["n"] for row in result["first_token_ms"].values()} == {result["keys"]} and result["keys"] >= 10
    assert result["up_s"] > 0 and result["start_phases_s"]["weights"] == 0.5  # as the engine writes
    assert {"controller", "directory", "proxy", "replica's actor"} <= set(result["memory_mib"])
    coming = {name: row["n"] for name, row in result["coming_ms"].items()}
    assert coming == {"listed": 3, "in_service": 3, "engine_out_of_service": 1, "replica_out_of_service": 1}
    assert result["coming_ms"]["listed"]["p50"] < result["coming_ms"]["in_service"]["p50"]

    def nobody() -> bool:
        return not any(str(own) in " ".join(one.info["cmdline"] or []) for one in psutil.process_iter(["cmdline"]))

    until(nobody, what="no engine of it")
