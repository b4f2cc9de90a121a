"""Whether the URL of a Redis says what is meant. `redis` leaves out what it cannot read of one: a database that is no number becomes 0."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from redis.asyncio import ConnectionPool
from redis.exceptions import RedisError

_DATABASE: Final = re.compile(r"/?|/[0-9]{1,9}/?")
_OPTION: Final = re.compile(r"unexpected keyword argument '(\w+)'")


def check_redis_url(url: str) -> None:
    """Nothing is connected.

    Raises:
        ValueError: it is no URL of a Redis, its database is no number, or it has an option that does not exist. No password is told.
    """
    parts = urlsplit(url)
    if parts.scheme != "unix" and _DATABASE.fullmatch(parts.path) is None:
        raise ValueError("a database of Redis is a number, and what stands behind the port is none")
    pool = ConnectionPool.from_url(url)  # pyright: ignore[reportUnknownMemberType]
    try:
        pool.make_connection()  # pyright: ignore[reportUnknownMemberType]
    except TypeError as error:  # else told by the first request
        name = _OPTION.search(str(error))
        raise ValueError(f"a Redis has no option {name[1] if name else 'of that name'!r}") from error
    except RedisError as error:
        raise ValueError(f"one of its options cannot be read: {error}") from error
