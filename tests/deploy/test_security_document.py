"""Every line of docs/security.md names a test that exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_line_of_the_threat_model_names_a_test_that_exists() -> None:
    text = (ROOT / "docs" / "security.md").read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("|") and not re.match(r"\|[-| ]+$", line)]
    rows = [line for line in rows if not line.endswith("| test |")]
    code = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    known = set(re.findall(r"def (test_\w+)\(", code))
    assert len(rows) > 25
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named, f"no test in: {row}"
        assert set(named) <= known, f"{set(named) - known} in: {row}"
