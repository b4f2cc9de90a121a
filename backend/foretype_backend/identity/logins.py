"""Logins of browsers: a cookie and a name that the page keeps stand for a token, so that scripts never hold one.

The cookie alone opens nothing: browsers send it to every port of the host. The page's half stays with the page's origin, port
and all, and opens nothing alone either. Beside these two ways in there are codes, which open a page once, for a minute: an
address with a code may be seen in a list of processes or a browser's history.

What both stand for is kept sealed with them, in this process or in the folder that workers share: a reader of it has
no token. It is looked at anew with each request, so that a token that was revoked is no more use in a browser than elsewhere. A
gateway that starts again asks again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec

CODE_S: Final = 60.0
PAGE_HEADER: Final = "x-foretype-page"
PROTOCOL: Final = "foretype"
"""WebSockets of browsers have no headers: the page's half is offered as the sub-protocol `foretype.HALF` beside this one."""

_KEPT_S: Final = 8 * 3600.0
_MOST: Final = 1000


class PageLogin(NamedTuple):
    """The two halves that a browser gets: the cookie's value, and what the page keeps."""

    cookie: str
    page: str


class _Sealed(msgspec.Struct, array_like=True):
    until_s: float
    token: str


def cookie_name(host: str, *, secure: bool) -> str:
    """Name of the cookie at a `Host`: browsers keep the ports of a host apart for everything but cookies.

    Over TLS the name says that this host alone can have set it.
    """
    port = host.rpartition(":")[2]
    name = f"foretype_{port}" if port.isdigit() else "foretype"
    return f"__Host-{name}" if secure else name


class BrowserLogins:
    """Open logins and codes, the oldest of too many forgotten.

    Args:
        folder: of the gateway's user alone, which its workers share; None where there is one process.
        clock: monotonic seconds, which all processes of a machine count alike.
    """

    def __init__(self, folder: Path | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: _Shelf = _Memory() if folder is None else _Files(folder)

    def open(self, token: str) -> PageLogin:
        """A login for a token that was found right."""
        login = PageLogin(secrets.token_urlsafe(32), secrets.token_urlsafe(32))
        self._keep(login, token, _KEPT_S)
        return login

    def code(self, token: str) -> str:
        """What can be changed for this token once, for a minute."""
        code = secrets.token_urlsafe(32)
        self._keep(PageLogin(code, ""), token, CODE_S)
        return code

    def redeem(self, code: str) -> str | None:
        """The token that a code stands for; it stands for none any more."""
        sealed = self._kept.take(_name(code))
        return None if sealed is None else self._open(PageLogin(code, ""), sealed)

    def token(self, headers: Mapping[str, str]) -> str | None:
        """The token that a request's cookie and page stand for."""
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return None
        host, page = headers.get("host", ""), _page(headers)
        for secure in (True, False):
            morsel = cookies.get(cookie_name(host, secure=secure))
            sealed = None if morsel is None else self._kept.get(_name(morsel.value))
            if morsel is not None and sealed is not None and page:
                return self._open(PageLogin(morsel.value, page), sealed)
        return None

    def _keep(self, login: PageLogin, token: str, kept_s: float) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # 45 ms that only a login takes

        nonce = os.urandom(12)
        plain = msgspec.msgpack.encode(_Sealed(self._clock() + kept_s, token))
        self._kept.put(_name(login.cookie), nonce + AESGCM(_key(login)).encrypt(nonce, plain, None))

    def _open(self, login: PageLogin, sealed: bytes) -> str | None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            plain = AESGCM(_key(login)).decrypt(sealed[:12], sealed[12:], None)
        except InvalidTag:  # another page's half
            return None
        found = msgspec.msgpack.decode(plain, type=_Sealed)
        if found.until_s > self._clock():
            return found.token
        self._kept.take(_name(login.cookie))
        return None


class _Shelf(Protocol):
    """Sealed pieces by name, the oldest of too many forgotten."""

    def put(self, name: str, sealed: bytes) -> None: ...

    def get(self, name: str) -> bytes | None: ...

    def take(self, name: str) -> bytes | None:
        """It is not there any more; of several that take it one gets it."""
        ...


class _Memory:
    def __init__(self) -> None:
        self._kept: OrderedDict[str, bytes] = OrderedDict()

    def put(self, name: str, sealed: bytes) -> None:
        self._kept[name] = sealed
        if len(self._kept) > _MOST:
            self._kept.popitem(last=False)

    def get(self, name: str) -> bytes | None:
        return self._kept.get(name)

    def take(self, name: str) -> bytes | None:
        return self._kept.pop(name, None)


class _Files:
    """One file each, in a folder of the gateway's user alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "logins"
        self._folder.mkdir(mode=0o700, exist_ok=True)

    def put(self, name: str, sealed: bytes) -> None:
        fresh = self._folder / f"{name}.new"
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(sealed)
        fresh.rename(self._folder / name)
        with contextlib.suppress(FileNotFoundError):  # another worker takes one meanwhile
            kept = [(one.stat().st_mtime_ns, one) for one in self._folder.iterdir()]
            for _, old in sorted(kept)[:-_MOST]:
                old.unlink(missing_ok=True)

    def get(self, name: str) -> bytes | None:
        with contextlib.suppress(OSError):
            return (self._folder / name).read_bytes()
        return None

    def take(self, name: str) -> bytes | None:
        taken = self._folder / f"{name}.{secrets.token_hex(8)}"
        with contextlib.suppress(OSError):
            (self._folder / name).rename(taken)
            sealed = taken.read_bytes()
            taken.unlink()
            return sealed
        return None


def _name(value: str) -> str:
    return sha256(b"name " + value.encode("utf-8", "surrogatepass")).hexdigest()


def _key(login: PageLogin) -> bytes:
    """Both halves are 256 random bits, so that a hash of them is a key."""
    return sha256(f"key {login.cookie} {login.page}".encode("utf-8", "surrogatepass")).digest()


def _page(headers: Mapping[str, str]) -> str:
    offered = [one.strip() for one in headers.get("sec-websocket-protocol", "").split(",")]
    half = next((one for one in offered if one.startswith(f"{PROTOCOL}.")), "")
    return headers.get(PAGE_HEADER, "") or half.removeprefix(f"{PROTOCOL}.")
