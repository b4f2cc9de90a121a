"""A small real tokenizer for tests that need no shipped file would differ from it; these tests use the shipped one."""

from pathlib import Path

import pytest
import tiktoken
from foretype_lab.training import tokenizer
from foretype_models import artifacts


@pytest.fixture(scope="session")
def tokenizer_path() -> Path:
    return artifacts.FOLDER / "tokenizer.json"


@pytest.fixture(scope="session")
def encoding(tokenizer_path: Path) -> tiktoken.Encoding:
    return tokenizer.to_tiktoken(tokenizer_path)
