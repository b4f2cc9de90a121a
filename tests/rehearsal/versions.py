"""An upgrade from an earlier version with its stores full, and the way back, as docs/deploy.md has it."""

from __future__ import annotations

import json

from rehearsal.engine import Engine
from rehearsal.http import answers, completion
from rehearsal.images import FORMER, ROOT, former
from rehearsal.load import under_load
from rehearsal.steps import check, step, until
from rehearsal.team import Team, team

__all__ = ["upgrade"]

_DATABASE = ("-U", "foretype", "-h", "127.0.0.1")
_TABLES = ("id_tenants", "id_users", "id_keys", "events")


def upgrade(engine: Engine) -> None:
    with step(f"the image of {FORMER} is built"):
        folder = former(engine)
    with team(engine) as one:
        with step("the former version serves, and its stores are filled"):
            one.files(folder / "deploy", "foretype:former")
            serve(one)
            key = one.key("acme")
            under_load(one, key, lambda _: None)
            until("usage is stored", lambda: requests(one) > 0)
            engine("stop", "-t", "30", one.container("gateway"))
            before = contents(one)
            check(min(before.values()) > 0, f"the stores are not full: {before}")
            backup = one.inside("pg_dump", *_DATABASE, "foretype", service="postgres").encode()
        with step("this version brings the stores to its own tables, and serves with the same key"):
            one.files(ROOT / "deploy")
            serve(one)
            check(completion(one.url, key)[0] == 200, "the former version's key is not served")
            engine("stop", "-t", "30", one.container("gateway"))
            after = contents(one)
            check(all(after[table] >= count for table, count in before.items()), f"{before}, and then {after}")
            engine("start", one.container("gateway"))
            one.ready()
            under_load(one, key, lambda _: None)
        with step("and back, over the backup: what was there before the upgrade is there"):
            engine("stop", "-t", "30", one.container("gateway"))
            one.inside("dropdb", *_DATABASE, "--force", "foretype", service="postgres")
            one.inside("createdb", *_DATABASE, "foretype", service="postgres")
            psql = ["psql", "-q", "-o", "/dev/null", "-v", "ON_ERROR_STOP=1", *_DATABASE, "foretype"]
            one.inside(*psql, service="postgres", stdin=backup)
            check(contents(one) == before, f"{before}, and then {contents(one)}")
            one.files(folder / "deploy", "foretype:former")
            serve(one)
            check(answers(f"{one.url}/v1/models", key), "the former version does not know its key")
            check(completion(one.url, key)[0] == 200, "the former version does not serve its key")


def serve(one: Team) -> None:
    """As this version's files say: its model, its engine, its tables, its gateway."""
    one.tokenizer()
    one.up("postgres")
    for name in ("vllm", "prepare"):
        one.start(name)
    one.ended("prepare")
    one.wait_healthy("vllm")
    one.start("gateway")
    one.ready()


def requests(one: Team) -> int:
    users = json.loads(one.foretype("usage", "--json", "--profile", "/etc/foretype/team.toml"))["users"]
    return sum(user["requests"] for user in users)


def contents(one: Team) -> dict[str, int]:
    """Rows of what an operator would miss."""
    return {table: int(one.sql(f"select count(*) from {table}")[0]) for table in _TABLES}
