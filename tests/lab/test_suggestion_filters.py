"""Right texts out of real files are shown as they stood there, and wrong ones become right or nothing."""

from pathlib import Path

import pytest
from foretype_lab.quality.filters import ANOTHER_END, count

ROOT = Path(__file__).parents[2]
FILES = {
    "python": "context/foretype_context/**/*.py",
    "typescript": "editors/vscode/src/**/*.ts",
    "shellscript": "editors/*.sh",
}


@pytest.mark.parametrize("language", FILES)
def test_filters_leave_right_texts_alone(language: str) -> None:
    files = [text for path in sorted(ROOT.glob(FILES[language])) if len(text := path.read_text()) > 400]
    files = [text for text in files if "<EOT>" not in text]  # what writes a control token is hidden, and right to be
    assert files
    right, wrong, bad = count(files, language, 60, seed=1)
    assert right["right"] == right.total(), [found for found in bad if found[2] in ("hidden", "cut", "other")]
    faults = {key: number for key, number in wrong.items() if key[0] != ANOTHER_END}
    assert sum(number for (_, how), number in faults.items() if how == "well") / sum(faults.values()) > 0.85, bad
    assert wrong[ANOTHER_END, "well"]
