import pytest
from foretype_client.private_gateway import finding


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that a busy machine keeps from answering is there all the same: no test has one that only says nothing."""
    monkeypatch.setattr(finding, "_HEALTH_TIMEOUT_S", 60.0)
