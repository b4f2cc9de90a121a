"""Asking a server plainly, past any proxy that this machine goes by."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any, Final

__all__ = ["answers", "completion", "get", "post"]

_HTTP: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _request(url: str, key: str | None, body: dict[str, Any] | None) -> urllib.request.Request:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} | ({} if key is None else {"Authorization": f"Bearer {key}"})
    return urllib.request.Request(url, data, headers)


def get(url: str, key: str | None = None) -> bytes:
    with _HTTP.open(_request(url, key, None), timeout=60) as answer:
        found: bytes = answer.read()
        return found


def post(url: str, key: str | None, body: dict[str, Any], timeout_s: float = 120.0) -> tuple[int, Any]:
    """The status, and what was said. Raises OSError where nobody answers."""
    try:
        with _HTTP.open(_request(url, key, body), timeout=timeout_s) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode("utf-8", "replace")


def answers(url: str, key: str | None = None) -> bool:
    try:
        get(url, key)
    except OSError:
        return False
    return True


def completion(url: str, key: str | None) -> tuple[int, Any]:
    body = {"prompt": "def mean(values):\n    return ", "suffix": "\n", "max_tokens": 8}
    return post(f"{url}/v1/completions", key, body)
