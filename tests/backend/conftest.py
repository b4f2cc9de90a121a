from collections.abc import Iterator

import pytest
from foretype_lab import postgres


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    """An empty database of a server of the module's own."""
    if not postgres.available():
        pytest.skip("no PostgreSQL here: apt-get install postgresql")
    with postgres.server() as url:
        yield url
