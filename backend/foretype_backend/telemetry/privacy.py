"""What `foretype privacy` does with the gateway's side: say what is kept, change what may be, export, and delete.

Found by the command through the entry-point group `foretype.privacy`, so that the client's package needs none of this.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from sqlalchemy import select

from foretype_backend.database import is_there
from foretype_backend.errors import StoreError
from foretype_backend.telemetry.consent import Consent
from foretype_backend.telemetry.intake import safe_name
from foretype_backend.telemetry.schema import EVENT_COLUMNS, events
from foretype_backend.telemetry.store import Store
from foretype_backend.telemetry.texts import Texts, read_key

__all__ = ["Privacy"]

_T = TypeVar("_T")


class Privacy:
    """The store, the texts and their key, as a gateway with the same settings uses them.

    Args:
        directory: the state directory's `telemetry` folder.
        url, text_url, key_file: as in the gateway's configuration.

    Every method raises ValueError with a message for people: nothing of what it says holds source text.
    """

    def __init__(
        self, directory: Path, *, url: str | None = None, text_url: str | None = None, key_file: Path | None = None
    ) -> None:
        self.url = url or str(directory / "events.db")
        self.text_url = text_url or str(directory / "texts")
        self._key_file, self._own_key = key_file, directory / "key"

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
            "tenants": tenants or [{**Consent("default")._asdict(), "events": 0, "texts": 0}],
        }

    def set(self, tenant: str, **changes: Any) -> dict[str, Any]:
        """Change flags or days of a tenant. Without `store_text` its texts are removed at once."""
        if wrong := [name for name, value in changes.items() if name.endswith("_days") and not 1 <= value <= 36_500]:
            raise ValueError(f"{wrong[0]}: must be 1 to 36500 days")

        async def change(store: Store, texts: Texts | None) -> dict[str, Any]:
            consent = (await store.consent(tenant))._replace(**changes)
            await store.set_consent(consent)
            if texts is not None and not consent.store_text:
                await texts.delete(tenant=tenant)
            return consent._asdict()

        if safe_name(tenant) != tenant:
            raise ValueError(f"tenant: {tenant!r} must be 1 to 64 letters, digits, - or _")
        return self._run(change)

    def delete(self, tenant: str, user: str | None) -> dict[str, int]:
        """Remove everything of a tenant, or of one user of it. Returns how many events and objects of text went."""

        async def remove(store: Store, texts: Texts | None) -> dict[str, int]:
            objects = await texts.delete(tenant=tenant, user=user) if texts is not None else 0
            return {"events": await store.delete(tenant=tenant, user=user), "texts": objects}

        if not self._exists():
            return {"events": 0, "texts": 0}
        return self._run(remove)

    def export(self, file: Path) -> dict[str, int]:
        """Write events and texts of tenants with `train` as JSON lines (mode 0600), and of nobody else."""

        async def write(store: Store, texts: Texts | None) -> dict[str, int]:
            counts = {"tenants": 0, "events": 0, "texts": 0}
            consents = [consent for consent in await store.consents() if consent.train]
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as out:
                for consent in consents:
                    counts["tenants"] += 1
                    async for row in _events_of(store, consent.tenant):
                        out.write(msgspec.json.encode(row) + b"\n")
                        counts["events"] += 1
                    if texts is None or not consent.store_text:
                        continue
                    async for path in texts.paths(consent.tenant):
                        for sample in await texts.read(path):
                            out.write(msgspec.json.encode({"tenant": consent.tenant, **sample}) + b"\n")
                            counts["texts"] += 1
            return counts

        if not self._exists():
            raise ValueError(f"{self.url} is not there: no gateway has kept anything in it; give --store URL")
        return self._run(write)

    async def _shown(self, store: Store, texts: Texts | None) -> tuple[str, list[dict[str, Any]]]:
        tenants: list[dict[str, Any]] = []
        for consent in await store.consents():
            count = await store.count(tenant=consent.tenant)
            objects = [path async for path in texts.paths(consent.tenant)] if texts is not None else []
            tenants.append({**consent._asdict(), "events": count, "texts": len(objects)})
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
        except (StoreError, OSError) as error:
            raise ValueError(str(error)) from error

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[tuple[Store, Texts | None]]:
        texts = Texts(self.text_url, read_key(self._key_file, self._own_key)) if self._has_texts() else None
        store = await Store.open(self.url)
        try:
            yield store, texts
        finally:
            await store.close()


async def _events_of(store: Store, tenant: str) -> AsyncGenerator[dict[str, Any]]:
    async with store.transaction() as connection:
        result = await connection.stream(select(events).where(events.c.tenant == tenant))
        async for row in result:
            made = dict(zip(EVENT_COLUMNS, row, strict=True))
            yield {**made, "data": msgspec.json.decode(str(made["data"]) or "{}")}
