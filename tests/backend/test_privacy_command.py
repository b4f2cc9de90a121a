"""`foretype privacy` as people call it: what is kept and where, consent, export, deletion."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from backend.telemetry_world import display, files_with, opportunity, sample, sink_in
from foretype_backend.telemetry.consent import Consent
from foretype_backend.telemetry.intake import Sender
from foretype_client.commands.privacy import app
from foretype_client.telemetry.spool import Spool
from typer.testing import CliRunner

USER, OTHER = "0123456789abcdef" * 2, "f" * 32


def called(state: Path, *arguments: str) -> Any:
    done = CliRunner().invoke(app, [*arguments, "--json", "--state-dir", str(state)])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def filled(state: Path) -> Path:
    """Two tenants in one store, both with text; a batch of this user's still in the spool."""
    folder = state / "telemetry"

    async def fill() -> None:
        telemetry = sink_in(folder)
        store = await telemetry.open()
        for tenant, user in (("default", USER), ("acme", OTHER)):
            await store.set_consent(Consent(tenant, store_text=True))
            sender = Sender("c1", tenant=tenant, user=user)
            await telemetry(sender, "b1", [opportunity(1), display(2, f"shown-{user}", 900.0), sample(3, "secret")])
        await telemetry.tidy()
        await telemetry.close()

    asyncio.run(fill())
    (folder / "user").write_text(USER)
    Spool(folder / "spool").write("waiting", USER.encode())
    return folder


def test_show_says_places_retention_and_flags(tmp_path: Path) -> None:
    empty = called(tmp_path / "none", "show")
    assert empty["user"] in (None, "") and empty["spooled_batches"] == 0
    assert called(tmp_path / "none", "delete", "--user", "x") == {"events": 0, "texts": 0, "spooled_batches": 0}
    assert not (tmp_path / "none").exists(), "asking makes nothing"
    folder = filled(tmp_path)
    shown = called(tmp_path, "show")
    assert {place["what"] for place in shown["places"]} == {"spool", "events", "texts", "key"}
    for place in shown["places"]:
        assert str(folder) in place["place"] and place["holds"] and place["retention"]
    assert shown["user"] == USER and shown["spooled_batches"] == 1
    tenants = {tenant["tenant"]: tenant for tenant in shown["tenants"]}
    assert tenants["acme"] | {"events_days": 90, "text_days": 30} == tenants["acme"]
    assert tenants["default"]["store_text"] and not tenants["default"]["train"]
    assert tenants["default"]["events"] == 2 and tenants["default"]["texts"] == 1
    for_people = CliRunner().invoke(app, ["show", "--state-dir", str(tmp_path)])
    assert all(word in for_people.stdout for word in ("spool:", "texts:", "acme", USER))


def test_an_export_holds_tenants_that_agreed_to_train_and_nobody_else(tmp_path: Path) -> None:
    filled(tmp_path)
    out = tmp_path / "out.jsonl"
    out.touch(0o644)  # one that is there already is for nobody else from now on either
    assert called(tmp_path, "export", str(out)) == {"tenants": 0, "events": 0, "texts": 0}
    called(tmp_path, "set", "--tenant", "acme", "--train")
    assert called(tmp_path, "export", str(out)) == {"tenants": 1, "events": 2, "texts": 1}
    assert out.stat().st_mode & 0o777 == 0o600
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert {line["tenant"] for line in lines} == {"acme"} and USER not in out.read_text()
    # Text goes with its own flag: without it there is none to export.
    called(tmp_path, "set", "--tenant", "acme", "--no-store-text")
    assert called(tmp_path, "export", str(out))["texts"] == 0


def test_me_is_deleted_from_every_file(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    assert files_with(folder, USER.encode())
    assert called(tmp_path, "delete", "--user", "me") == {"events": 2, "texts": 1, "spooled_batches": 1}
    assert files_with(folder, USER.encode()) == []
    assert files_with(folder, OTHER.encode()), "nobody else"
    assert called(tmp_path, "delete", "--tenant", "acme")["events"] == 2
    assert files_with(folder, OTHER.encode()) == [] and files_with(folder, b"acme") == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["set"], "nothing to change"),
        (["set", "--events-days", "0"], "events_days"),
        (["set", "--tenant", "a/b", "--train"], "tenant"),
        (["delete"], "--user ID"),
        (["delete", "--user", "me"], "nothing was ever recorded"),
        (["export", "none/out.jsonl"], "events.db is not there"),
        (["show", "--store", "mysql://h/d"], "telemetry.url: 'mysql' is not supported"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(app, [*arguments, "--state-dir", str(tmp_path)])
    assert done.exit_code == 2 and message in " ".join(done.output.split())
