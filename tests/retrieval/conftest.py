from pathlib import Path

import pytest
from retrieval.workspace import write_files


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small workspace on disk."""
    return write_files(tmp_path / "w")
