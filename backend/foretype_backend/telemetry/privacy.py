"""What `foretype privacy` does with the gateway's side: say what is kept, change what may be, export, and delete.

Found by the command through the entry-point group `foretype.privacy`, so that the client's package needs none of this.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import select

from foretype_backend.config.config import Config
from foretype_backend.config.load import load_config
from foretype_backend.config.secret_files import open_private
from foretype_backend.database import is_there
from foretype_backend.errors import ConfigError, StoreError
from foretype_backend.identity.audit_chain import Act
from foretype_backend.identity.directory import DEFAULT_TENANT
from foretype_backend.identity.store import audited
from foretype_backend.telemetry.consent import Consent
from foretype_backend.telemetry.intake import safe_name
from foretype_backend.telemetry.schema import EVENT_COLUMNS, events
from foretype_backend.telemetry.store import Store
from foretype_backend.telemetry.texts import Texts, read_key
from foretype_backend.telemetry.upkeep import kept, reseal

_T = TypeVar("_T")
_ANOTHER: Final = "name the gateway's with --profile FILE or --store URL"


class Privacy:
    """The store, the texts and their key, as a gateway with the same settings uses them.

    Args:
        directory: the state directory's `telemetry` folder.
        url, text_url, key_file: as in the gateway's configuration; stronger than what `profile` says.
        profile: the gateway's TOML file.

    Every method raises ValueError with a message for people: nothing of what it says holds source text.
    """

    def __init__(
        self,
        directory: Path,
        *,
        url: str | None = None,
        text_url: str | None = None,
        key_file: Path | None = None,
        profile: Path | None = None,
    ) -> None:
        state = directory.parent
        self._config = Config(state_dir=state) if profile is None else load_config(profile=profile, state_dir=state)
        named = self._config.telemetry
        self.url = url or named.url or str(directory / "events.db")
        self.text_url = text_url or named.text_url or str(directory / "texts")
        self._key_file = key_file or (None if named.key_file is None else Path(named.key_file))
        self._own_key = directory / "key"

    def show(self) -> dict[str, Any]:
        """Places, and for each tenant its flags, retention in days, and what there is of it."""
        tenants: list[dict[str, Any]] = []
        place = self.url
        if self._exists():
            place, tenants = self._run(self._shown)
        return {
            "places": [
                {
                    "what": "events",
                    "place": place,
                    "holds": "ids, times, lengths, languages; never source text",
                    "retention": "events_days, then only sums by day",
                },
                {
                    "what": "texts",
                    "place": self.text_url,
                    "holds": "text around suggestions, encrypted; only of tenants with store_text",
                    "retention": "text_days",
                },
                {
                    "what": "key",
                    "place": str(self._key_file or self._own_key),
                    "holds": "key of the texts",
                    "retention": "until removed",
                },
            ],
            "tenants": tenants
            or [{**Consent("default")._asdict(), "events": 0, "texts": 0, "oldest_event": None, "oldest_text": None}],
        }

    def set(self, tenant: str, **changes: Any) -> dict[str, Any]:
        """Change flags or days of a tenant. Without `store_text` its texts are removed at once."""
        if wrong := [name for name, value in changes.items() if name.endswith("_days") and not 1 <= value <= 36_500]:
            raise ValueError(f"{wrong[0]}: must be 1 to 36500 days")

        async def change(store: Store, texts: Texts | None) -> dict[str, Any]:
            consent = (await store.consent(tenant))._replace(**changes)
            await self._note(Act("privacy.set", tenant, tenant, changes))
            await store.set_consent(consent)
            if texts is not None and not consent.store_text:
                async with store.alone():
                    await texts.delete(tenant=tenant)
            return consent._asdict()

        if safe_name(tenant) != tenant:
            raise ValueError(f"tenant: {tenant!r} must be 1 to 64 letters, digits, - or _")
        return self._run(change)

    def delete(self, tenant: str, user: str | None, *, ours: bool = False) -> dict[str, int]:
        """Remove everything of a tenant, or of one user of it. Returns how many events and objects of text went.

        Args:
            ours: it is this machine's own user, of whom there need not be anything yet.

        Raises:
            ValueError: nothing is kept of that tenant or user: the name is wrong, or the store is.
        """
        whole = user is None and tenant != DEFAULT_TENANT  # where there are no tenants there may be nothing of anybody

        async def remove(store: Store, texts: Texts | None) -> dict[str, int]:
            if (whole or (user is not None and not ours)) and not await self._keeps(store, texts, tenant, user):
                whom, remedy = f"tenant {tenant!r}", "`privacy show` lists whose there is"
                if user is not None:
                    whom, remedy = (
                        f"user {user!r} of {whom}",
                        "give that user's --tenant, and what `privacy show` calls the user there",
                    )
                raise StoreError(f"nothing is kept of {whom} in {store.place}; {remedy}")
            # The log outlives what is deleted: it holds a digest of the pseudonym.
            subject = tenant if user is None else f"user {sha256(user.encode()).hexdigest()[:16]}"
            await self._note(Act("privacy.delete", subject, tenant, {"whole_tenant": user is None}))
            objects = 0
            if texts is not None:
                async with store.alone():
                    objects = await texts.delete(tenant=tenant, user=user)
            return {"events": await store.delete(tenant=tenant, user=user), "texts": objects}

        if not self._exists():
            if whole:
                raise ValueError(f"{self.url} is not there: no gateway has kept anything in it; {_ANOTHER}")
            return {"events": 0, "texts": 0}
        return self._run(remove)

    async def _keeps(self, store: Store, texts: Texts | None, tenant: str, user: str | None) -> bool:
        if user is not None:
            found = await store.keeps(tenant=tenant, user=user)
        else:
            found = tenant in {one.tenant for one in await store.consents()}
        if found or texts is None:
            return found
        return bool([path async for path in texts.paths(tenant if user is None else f"{tenant}/{user}")])

    def export(self, file: Path) -> dict[str, int]:
        """Write events and texts of tenants with `train` as JSON lines (mode 0600), and of nobody else."""

        async def write(store: Store, texts: Texts | None) -> dict[str, int]:
            counts = {"tenants": 0, "events": 0, "texts": 0}
            consents = [consent for consent in await store.consents() if consent.train]
            for consent in consents:
                details = {"file": str(file), "texts": consent.store_text and texts is not None}
                await self._note(Act("privacy.export", consent.tenant, consent.tenant, details))
            with open_private(file) as out:
                for consent in consents:
                    counts["tenants"] += 1
                    async for row in _events_of(store, consent.tenant):
                        out.write(msgspec.json.encode(row) + b"\n")
                        counts["events"] += 1
                    if texts is None or not consent.store_text:
                        continue
                    found = [path async for path in texts.paths(consent.tenant)]
                    for path in {path.partition(".")[0]: path for path in sorted(found)}.values():
                        for sample in await texts.read(path):
                            out.write(msgspec.json.encode({"tenant": consent.tenant, **sample}) + b"\n")
                            counts["texts"] += 1
            return counts

        if not self._exists():
            raise ValueError(f"{self.url} is not there: no gateway has kept anything in it; {_ANOTHER}")
        return self._run(write)

    def rotate_key(self, *, to: Path | None = None, go_on: bool = False) -> dict[str, Any]:
        """Make another key of the texts, and seal again what former ones sealed; what was killed half way is gone on with.

        Args:
            to: a file with another master key, which is to open all texts from now on as the present one does.
            go_on: make no new key.
        """

        async def rotate(store: Store, texts: Texts | None) -> dict[str, Any]:
            if texts is None:
                raise StoreError(f"{self.text_url} is not there: no text was ever kept; give --texts URL")
            also = None if to is None else read_key(to, to)
            await self._note(Act("privacy.rotate_key", self.text_url, details={"go_on": go_on, "to": to is not None}))
            if not go_on:
                await texts.keys.add(_now_ms(), also)
            done = await reseal(store, texts, most=sys.maxsize, now_ms=_now_ms())
            return {
                "key": await texts.keys.newest(),
                "sealed_again": done.done,
                "former_keys": len(await texts.keys.former()),
            }

        return self._run(rotate)

    async def _note(self, act: Act) -> None:
        """In the audit log, before it is done. Raises StoreError or ConfigError: then it is not."""
        async with audited(self._config) as identity:
            await identity.note(act)

    async def _shown(self, store: Store, texts: Texts | None) -> tuple[str, list[dict[str, Any]]]:
        tenants: list[dict[str, Any]] = []
        since = {one.tenant: one for one in await kept(store, texts)}
        for consent in await store.consents():
            one = since.get(consent.tenant)
            oldest = {"oldest_event": one and one.oldest_event, "oldest_text": one and one.oldest_text}
            count = await store.count(tenant=consent.tenant)
            objects = [path async for path in texts.paths(consent.tenant)] if texts is not None else []
            tenants.append({**consent._asdict(), "events": count, "texts": len(objects), **oldest})
        return store.place, tenants

    def _exists(self) -> bool:
        """A SQLite file that no gateway has made yet is not made by asking about it."""
        try:
            return is_there(self.url, "telemetry.url")
        except StoreError as error:
            raise ValueError(str(error)) from error

    def _has_texts(self) -> bool:
        return "://" in self.text_url or Path(self.text_url).exists()

    def _run(self, work: Callable[[Store, Texts | None], Awaitable[_T]]) -> _T:
        async def whole() -> _T:
            async with self._opened() as (store, texts):
                return await work(store, texts)

        try:
            return asyncio.run(whole())
        except (StoreError, ConfigError, OSError) as error:
            raise ValueError(str(error)) from error

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[tuple[Store, Texts | None]]:
        texts = Texts(self.text_url, read_key(self._key_file, self._own_key)) if self._has_texts() else None
        store = await Store.open(self.url)
        try:
            yield store, texts
        finally:
            await store.close()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


async def _events_of(store: Store, tenant: str) -> AsyncGenerator[dict[str, Any]]:
    async with store.transaction() as connection:
        result = await connection.stream(select(events).where(events.c.tenant == tenant))
        async for row in result:
            made = dict(zip(EVENT_COLUMNS, row, strict=True))
            yield {**made, "data": msgspec.json.decode(str(made["data"]) or "{}")}
