"""PostgreSQL for tests."""

import psycopg
import pytest
from backend.postgres_server import available, postgres


@pytest.mark.skipif(not available(), reason="PostgreSQL is not installed")
def test_a_server_ends_also_where_a_session_was_left_open() -> None:
    with postgres() as made:
        left = psycopg.connect(made.url)
    with pytest.raises(psycopg.OperationalError):
        left.execute("SELECT 1")
    left.close()
