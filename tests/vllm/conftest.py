"""The real vLLM, on a random network of layers of the shipped size but for test_real_weights.py. Run by `.venv-vllm/bin/python -m pytest tests/vllm -m vllm` (`make test-vllm`).

Engines are slow to start, so a module shares one, and with it an event loop.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
from vllm_world.model_folders import write_served
from vllm_world.serving import VllmServe

HERE = Path(__file__).parent
_FOUND = importlib.util.find_spec("vllm")
INSTALLED = _FOUND is not None and _FOUND.origin is not None  # without an origin it is this folder


def pytest_configure(config: pytest.Config) -> None:
    if INSTALLED:
        # At the end of the session vLLM's sockets are collected in whatever order; the `error` of our own tests is too much there.
        config.addinivalue_line("filterwarnings", "ignore::pytest.PytestUnraisableExceptionWarning")
        config.addinivalue_line("filterwarnings", "ignore::ResourceWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker(pytest.mark.vllm)
        if not INSTALLED:
            item.add_marker(
                pytest.mark.skip(reason="vLLM is not in this environment: `make test-vllm` runs these tests")
            )
        # Libraries of vLLM's warn of their own deprecations, and its processes leave what they share to the system.
        for ignored in (
            "DeprecationWarning",
            "FutureWarning",
            "UserWarning",
            "pytest.PytestUnraisableExceptionWarning",
        ):
            item.add_marker(pytest.mark.filterwarnings(f"ignore::{ignored}"))


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_served(tmp_path_factory.mktemp("vllm") / "model")


@pytest.fixture(scope="module")
def served(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServe]:
    """For the tests of a module that need a `vllm serve`."""
    server = VllmServe(model_folder, tmp_path_factory.mktemp("serve"))
    try:
        server.start()
        yield server
    finally:
        server.clear(gently=True)


@pytest.fixture(scope="module")
def options(model_folder: Path) -> dict[str, object]:
    """For the tests of a module that need no more than an engine."""
    return {"model": model_folder, "eager": True, "cache_gib": 1.0, "block_tokens": 32}
