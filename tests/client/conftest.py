import asyncio
from collections.abc import Callable

import pytest
from client.virtual import VirtualLoop
from foretype_client.private_gateway import finding


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "virtual_time: async tests on virtual time (client/virtual.py)")


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.get_closest_marker("virtual_time"):
        return {"virtual": VirtualLoop}
    return {"real": asyncio.new_event_loop}


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that a busy machine keeps from answering is there all the same: no test has one that only says nothing."""
    monkeypatch.setattr(finding, "_HEALTH_TIMEOUT_S", 60.0)
