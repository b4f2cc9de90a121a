"""Prometheus' own judge of rules."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

__all__ = ["holds", "needs_promtool", "promtool"]

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool (Debian package prometheus)")


def promtool(*words: object) -> None:
    """It finds nothing wrong."""
    done = subprocess.run(["promtool", *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def holds(folder: Path, rules: Path, interval: str, **test: Any) -> None:
    """Over the series of this test, looked at after each `interval`, the rules of a file say what it expects."""
    file = folder / "test.yml"
    told = {"rule_files": [str(rules)], "evaluation_interval": interval, "tests": [{"interval": interval, **test}]}
    file.write_text(yaml.safe_dump(told))
    promtool("test", "rules", file)
