"""Tables of the identity store. Migrations make them; a test holds both to be equal."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sqlalchemy import BigInteger, Boolean, Column, Float, Index, MetaData, String, Table, Text

from foretype_backend.database import Schema

metadata: Final = MetaData()

tenants: Final = Table(
    "id_tenants",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("tier", String(8), nullable=False),
    Column("weight", Float(53), nullable=False),
    Column("budgets", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("enabled", Boolean, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
)
"""`budgets` is JSON: limits in tokens by what they bound; `epoch` is that of the cache salt, and grows with every purge."""

SCOPE_MAX_CHARS: Final = 128

epochs: Final = Table(
    "id_epochs",
    metadata,
    Column("tenant", String(64), primary_key=True),
    Column("scope", String(SCOPE_MAX_CHARS), primary_key=True),
    Column("epoch", BigInteger, nullable=False),
)
"""Repositories (`scope`) that were purged; a whole tenant's epoch stands in its own row."""

gateways: Final = Table(
    "id_gateways",
    metadata,
    Column("name", String(320), primary_key=True),
    Column("token", String(32), primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("seen_ms", BigInteger, nullable=False),
)
"""Gateway processes that follow this store, each with the version that it has put in place. `name` says where one listens, `token` is
of one process: its successor has the same name."""

teams: Final = Table(
    "id_teams",
    metadata,
    Column("tenant", String(64), primary_key=True),
    Column("name", String(64), primary_key=True),
)

users: Final = Table(
    "id_users",
    metadata,
    Column("tenant", String(64), primary_key=True),
    Column("name", String(128), primary_key=True),
    Column("team", String(64), nullable=False),
    Column("enabled", Boolean, nullable=False),
)

keys: Final = Table(
    "id_keys",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("hash", String(64), nullable=False),
    Column("tenant", String(64), nullable=False),
    Column("user_name", String(128), nullable=False),
    Column("scopes", String(128), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=True),
    Column("revoked_ms", BigInteger, nullable=True),
    Column("successor", String(16), nullable=False),
)
"""`hash` is SHA-256 of the secret in hex; the secret itself is shown once and kept nowhere."""

Index("id_keys_by_tenant", keys.c.tenant)

COUNTERS: Final = ("requests", "prompt_tokens", "cached_tokens", "generated_tokens", "wasted_tokens", "engine_us")
"""Of `usage`. `wasted_tokens` were generated for requests nobody wanted any more; `engine_us` is time in the engine."""

usage: Final = Table(
    "id_usage",
    metadata,
    Column("tenant", String(64), primary_key=True),
    Column("team", String(64), primary_key=True),
    Column("user_name", String(128), primary_key=True),
    Column("class", String(16), primary_key=True),
    Column("day", String(10), primary_key=True),
    *(Column(name, BigInteger, nullable=False) for name in COUNTERS),
)

Index("id_usage_by_day", usage.c.day)

flushes: Final = Table(
    "id_flushes",
    metadata,
    Column("gateway", String(64), primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
)
"""The last batch of usage of each gateway process: one that is sent twice is counted once."""

state: Final = Table(
    "id_state", metadata, Column("name", String(32), primary_key=True), Column("value", BigInteger, nullable=False)
)
"""`version` grows with every change of tenants, users or keys; gateways look at it and reload when it moved."""

audit: Final = Table(
    "id_audit",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("actor", Text, nullable=False),
    Column("action", String(64), nullable=False),
    Column("tenant", String(64), nullable=False),
    Column("subject", Text, nullable=False),
    Column("details", Text, nullable=False),
    Column("key", String(16), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("seal", String(64), nullable=False),
)
"""Who did what, as :class:`.audit_chain.Entry` tells it. A trigger refuses every change but a new entry; `state` counts them as `audit`."""

experiments: Final = Table(
    "id_experiments",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("tenant", String(64), nullable=False),
    Column("team", String(64), nullable=False),
    Column("spec", Text, nullable=False),
    Column("state", String(8), nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("started_ms", BigInteger, nullable=False),
    Column("stopped_ms", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("by", String(320), nullable=False),
    Column("findings", Text, nullable=False, default=""),
    Column("looked_ms", BigInteger, nullable=False, default=0),
)
"""`spec` is JSON (:class:`foretype_backend.experiments.experiment.Spec`), `findings` what its guardrails said last."""

experiment_gateways: Final = Table(
    "id_experiment_gateways",
    metadata,
    Column("experiment", String(32), primary_key=True),
    Column("gateway", String(384), primary_key=True),
    Column("seen_ms", BigInteger, nullable=False),
    Column("followed", BigInteger, nullable=False),
    Column("left_out", BigInteger, nullable=False),
    Column("missing", Text, nullable=False),
    Column("error", Text, nullable=False),
    Column("since_ms", BigInteger, nullable=False),
)
"""What each gateway sees of an experiment: clients that follow it, those that are left out, why it cannot be applied."""

leases: Final = Table(
    "id_leases",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("holder", String(384), nullable=False),
    Column("until_ms", BigInteger, nullable=False),
)
"""Which gateway does what one of them has to do."""

rights: Final = Table(
    "id_rights",
    metadata,
    Column("tenant", String(64), primary_key=True),
    Column("repository", String(SCOPE_MAX_CHARS), primary_key=True),
    Column("team", String(64), primary_key=True),
)
"""Teams that share the cache of a repository; team "" says that it has rights at all."""

SCHEMA: Final = Schema(
    metadata=metadata,
    migrations=Path(__file__).with_name("migrations"),
    head="0005",
    marker="id_tenants",
    field="identity.url",
    version_table="id_alembic_version",
)
