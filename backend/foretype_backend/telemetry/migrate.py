"""The telemetry store's schema and its history."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from foretype_backend.database import Schema
from foretype_backend.telemetry.schema import metadata

HEAD: Final = "0006"
SCHEMA: Final = Schema(
    metadata=metadata,
    migrations=Path(__file__).with_name("migrations"),
    head=HEAD,
    marker="events",
    field="telemetry.url",
)
