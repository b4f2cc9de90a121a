"""Commands of operators: which store they work on is chosen once or said, and what they print can be read by a program."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from backend.telemetry_world import opportunity, sink_in
from backend.test_audited_acts import leaves
from foretype_backend.config.config import Config
from foretype_backend.config.settings import EngineConfig, TelemetryConfig
from foretype_backend.errors import ConfigError
from foretype_backend.identity.store import IdentityStore
from foretype_backend.start.plan import plan
from foretype_backend.telemetry.intake import Sender
from foretype_client.commands.cli import app
from msgspec.structs import replace
from typer.main import get_command
from typer.testing import CliRunner, Result

OF_A_GATEWAY = ("tenants", "keys", "usage", "audit", "rights", "experiment", "report", "privacy")


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"XDG_STATE_HOME": "/nowhere", **environment})


def test_every_command_of_a_gateway_takes_its_file_from_the_environment() -> None:
    """In a container nobody repeats `--profile` every time, and without it another, empty store was changed."""
    found = {name: one for name, one in leaves(get_command(app)) if name.partition(" ")[0] in OF_A_GATEWAY}
    assert len(found) > 20
    for name, command in found.items():
        chosen = {option.envvar for option in command.params if "--profile" in option.opts}
        assert chosen == {"FORETYPE_PROFILE"}, name


def test_a_profile_of_the_environment_is_the_store_that_is_changed(tmp_path: Path) -> None:
    profile, store = tmp_path / "team.toml", tmp_path / "i.db"
    profile.write_text(f'[identity]\nurl = "{store}"\n')
    done = run("tenants", "add", "acme", FORETYPE_PROFILE=str(profile), XDG_STATE_HOME=str(tmp_path / "state"))
    assert done.exit_code == 0 and not done.stderr, done.output
    assert store.exists() and not (tmp_path / "state").exists()
    other = tmp_path / "other.db"
    done = run("tenants", "list", "--json", "--store", str(other), FORETYPE_PROFILE=str(profile))
    assert json.loads(done.stdout) == [], "what is said outright is stronger"


def test_a_store_that_nobody_chose_is_named(tmp_path: Path) -> None:
    own = {"XDG_STATE_HOME": str(tmp_path)}
    done = run("tenants", "list", "--json", **own)
    assert json.loads(done.stdout) == []
    assert f"in the store {tmp_path}/foretype/identity/identity.db; a gateway with another" in done.stderr
    done = run("privacy", "delete", "--user", "x", "--json", **own)
    assert f"in {tmp_path}/foretype/telemetry/events.db; a gateway with another" in done.stderr
    assert not run("privacy", "show", **own).stderr, "it says every place itself"


def test_usage_of_a_tenant_that_nobody_knows_is_told(tmp_path: Path) -> None:
    store = ("--store", str(tmp_path / "i.db"))
    run("tenants", "add", "acme", *store)
    assert run("usage", "--tenant", "acme", *store).exit_code == 0
    done = run("usage", "--tenant", "acmee", *store)
    assert done.exit_code == 1 and "there is no tenant 'acmee'" in done.output


def kept_of_acme(path: Path) -> Path:
    async def fill() -> None:
        telemetry = sink_in(path)
        await telemetry(Sender("c1", tenant="acme", user="u"), "b1", [opportunity(1)])
        await telemetry.close()

    asyncio.run(fill())
    return path / "events.db"


def test_of_whom_nothing_is_kept_nobody_is_told_that_it_is_deleted(tmp_path: Path) -> None:
    store = str(kept_of_acme(tmp_path / "telemetry"))
    profile = tmp_path / "team.toml"
    profile.write_text(f'[identity]\nurl = "{tmp_path / "i.db"}"\n[telemetry]\nurl = "{store}"\n')
    chosen = {"FORETYPE_PROFILE": str(profile)}
    wrong = run("privacy", "delete", "--tenant", "nope", **chosen)
    assert wrong.exit_code != 0 and "nothing is kept of tenant 'nope' in the store" in wrong.stderr
    for of in ((), ("--tenant", "acme"), ("--tenant", "nope")):
        wrong = run("privacy", "delete", "--user", "nobody", *of, **chosen)
        assert wrong.exit_code != 0 and "nothing is kept of user 'nobody' of tenant" in wrong.stderr, of
    other = run("privacy", "delete", "--user", "u", **chosen)
    assert other.exit_code != 0 and "of tenant 'default' in" in other.stderr, "whose events are acme's"
    absent = run("privacy", "delete", "--tenant", "acme", "--store", str(tmp_path / "none.db"), **chosen)
    assert absent.exit_code != 0 and "no gateway has kept anything in it; name the gateway's" in absent.stderr
    done = run("privacy", "delete", "--tenant", "acme", "--json", **chosen)
    assert done.exit_code == 0 and json.loads(done.stdout)["events"] == 1


def told(*arguments: str) -> Any:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("given", "rotated", "days"),
    [(("--days", "90"), (), 90), ((), (), None), ((), ("--days", "7"), 7), (("--days", "90"), ("--days", "7"), 7)],
)
def test_a_successor_of_a_key_lives_as_long_as_the_key_was_given(
    tmp_path: Path, given: tuple[str, ...], rotated: tuple[str, ...], days: int | None
) -> None:
    store = ("--store", str(tmp_path / "i.db"))
    told("tenants", "add", "acme", *store)
    first = told("keys", "create", "--tenant", "acme", *given, *store)
    second = told("keys", "rotate", first["id"], *rotated, *store)

    async def expiry() -> int | None:
        opened = await IdentityStore.open(str(tmp_path / "i.db"))
        (row,) = [row for row in await opened.key_rows() if row.record.id == second["id"]]
        await opened.close()
        return None if row.record.expires_ms is None else row.record.expires_ms - row.created_ms

    assert asyncio.run(expiry()) == (None if days is None else days * 86_400_000)
    assert run("keys", "rotate", second["id"], "--days", "0", *store).exit_code == 1


def test_a_row_of_a_table_is_one_line_where_nobody_looks_at_columns(tmp_path: Path) -> None:
    """Figures were split over lines in a log, and the audit log was a column of letters."""
    store = ("--store", str(tmp_path / "i.db"))
    name = "a-tenant-with-a-rather-long-name-of-sixty-letters-or-nearly-so"
    told("tenants", "add", name, *store)
    told("keys", "create", "--tenant", name, "--scope", "complete", "--scope", "chat", "--scope", "admin", *store)
    for arguments, cells in (
        (("tenants", "list"), (name, "paid")),
        (("keys", "list"), (name, "admin chat complete")),
        (("audit", "list"), (name, "tenant.add")),
    ):
        lines = run(*arguments, *store).stdout.splitlines()
        assert any(all(cell in line for cell in cells) for line in lines), lines
    narrow = run("keys", "list", *store, COLUMNS="80").stdout
    assert max(map(len, narrow.splitlines())) <= 80


def test_a_state_directory_that_cannot_hold_events_ends_the_start_without_identities_too(tmp_path: Path) -> None:
    """A volume of another user: the gateway was ready, and no event was ever stored."""
    (tmp_path / "file").write_text("")
    config = replace(Config(), state_dir=tmp_path / "file", engine=EngineConfig(name="scripted"))
    with pytest.raises(
        ConfigError, match=r"^state_dir.*events.db cannot be made: .*--state-dir, or start with --no-telemetry"
    ):
        plan(config)
    plan(replace(config, telemetry=TelemetryConfig(enabled=False)))
    plan(replace(config, telemetry=TelemetryConfig(url=str(tmp_path / "events.db"))))


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that this user cannot enter, whoever runs the tests."""
    folder = tmp_path / "locked"
    folder.mkdir()
    stat, access = os.stat, os.access

    def denied(path: Any) -> bool:
        return isinstance(path, str | Path) and folder in Path(path).parents

    def may_stat(path: Any, *more: Any, **named: Any) -> os.stat_result:
        if denied(path):
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, *more, **named)

    def may_access(path: Any, mode: int) -> bool:
        return path != folder and not denied(path) and access(path, mode)

    monkeypatch.setattr(os, "stat", may_stat)
    monkeypatch.setattr(os, "access", may_access)
    return folder


def test_a_volume_that_another_user_keeps_closed_ends_the_start_in_a_sentence(locked: Path) -> None:
    config = replace(Config(), state_dir=locked / "foretype", engine=EngineConfig(name="scripted"))
    with pytest.raises(ConfigError, match=r"^state_dir.*cannot write to .*locked; .*--state-dir"):
        plan(config)
    named = replace(config, telemetry=TelemetryConfig(url=str(locked / "events.db")))
    with pytest.raises(ConfigError, match=r"^telemetry.url.*cannot write to .*locked; name a place"):
        plan(named)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("privacy", "show"), "locked/foretype/habits.json: Permission denied; "),
        (("privacy", "delete", "--tenant", "acme"), "telemetry/spool: Permission denied; "),
        (("report", "--of", "2026-W39"), "this user may not look for "),
        (("config", "new-secret", "locked/salt"), "cannot be made (Permission denied); give another path"),
    ],
)
def test_what_a_command_may_not_look_at_is_told_in_a_sentence(
    locked: Path, arguments: tuple[str, ...], told: str
) -> None:
    given = [str(locked / "salt") if one == "locked/salt" else one for one in arguments]
    found = run(*given, XDG_STATE_HOME=str(locked))
    assert found.exit_code in (1, 2) and isinstance(found.exception, SystemExit), found.exception
    assert told in found.output
