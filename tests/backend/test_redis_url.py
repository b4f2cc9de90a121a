"""URLs of a Redis that would be read as another one."""

import pytest
from foretype_backend.start.plan import check_redis_url


@pytest.mark.parametrize(
    "url",
    [
        "redis://h",
        "redis://h:6379/",
        "redis://:s3cret@h:6379/12",
        "rediss://h/0?ssl_cert_reqs=none",
        "redis://h/3?socket_timeout=2",
        "unix:///run/redis/s.sock?db=3",
    ],
)
def test_what_is_meant_is_taken(url: str) -> None:
    check_redis_url(url)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://h/budgets", "a number"),
        ("redis://h/1x", "a number"),
        ("redis://h/1/2", "a number"),
        ("redis://h/-1", "a number"),
        ("redis://:s3cret@h/0?sockettimeout=1", "no option 'sockettimeout'"),
        ("redis://h?ssl=true", "no option 'ssl'"),
        ("rediss://h?ssl_cert_reqs=perhaps", "cannot be read"),
        ("redis://h?db=x", "db"),
        ("http://h", "redis://"),
    ],
)
def test_what_would_be_read_as_something_else_is_refused(url: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        check_redis_url(url)
    assert "s3cret" not in str(refused.value)
