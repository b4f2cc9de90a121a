from collections.abc import Iterator

import pytest
from foretype_backend.identity import store_watch, usage

from backend import postgres_server


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that a busy machine keeps from answering is not one that is away: tests of such stores break their connections."""
    for module in (store_watch, usage):
        monkeypatch.setattr(module, "_ANSWER_S", 60.0)


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    """An empty database of a server of the module's own."""
    if not postgres_server.available():
        pytest.skip("no PostgreSQL here: apt-get install postgresql")
    with postgres_server.server() as url:
        yield url
