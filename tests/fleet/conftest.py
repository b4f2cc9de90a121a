"""Real Ray, run by `make test-fleet`, a cluster for each file. Replicas are what `engine.py` says, but where a test says otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.fleet)
            item.add_marker(pytest.mark.timeout(1800))
