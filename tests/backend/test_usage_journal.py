"""Usage that a client was told of is stored, whatever happens to the process that told it."""

import contextlib
import json
import sys
from pathlib import Path

import httpx
import msgspec
import pytest
from backend.identity_world import NOW_MS
from backend.test_gateway_process import serving
from backend.test_tenants_apart import keys_of
from backend.world import closing, until
from foretype_backend.admission.metering import Meter, UsageKey, UsageRow
from foretype_backend.config.load import load_config
from foretype_backend.config.secret_files import make_secret
from foretype_backend.errors import ConfigError
from foretype_backend.identity.store import IdentityStore
from foretype_backend.identity.usage import UsageWriter
from foretype_backend.identity.usage_journal import UsageJournal
from foretype_backend.start.plan import plan
from foretype_wire.messages import Usage

KEY = UsageKey("acme", "", "ann", "interactive", "2026-09-22")
ONE = Usage(prompt_tokens=7, generated_tokens=2)
SERVE = (sys.executable, "-m", "foretype_backend", "serve", "--engine", "scripted", "--port", "0", "--no-telemetry")


async def used(folder: Path, month: str) -> UsageRow:
    store = await IdentityStore.open(str(folder / "i.db"))
    async with closing(store):
        rows = await store.usage_of(month)
    total = UsageRow()
    for _, row in rows:
        total = total.plus(row)
    return total


@pytest.mark.slow
async def test_what_was_answered_is_counted_once_though_the_gateway_is_killed_at_once(tmp_path: Path) -> None:
    (ann,) = await keys_of(tmp_path, "ann")
    arguments = ("--identity-url", str(tmp_path / "i.db"), "--state-dir", str(tmp_path))
    told, requests = 0, 0
    month = ""
    for round_ in range(3):
        async with (
            serving(*arguments, command=SERVE) as (process, url),
            httpx.AsyncClient(base_url=url, trust_env=False, headers=ann, timeout=60) as http,
        ):
            for _ in range(1 + 4 * round_):
                answer = await http.post("/v1/completions", json={"prompt": "x = ", "max_tokens": 3})
                usage = answer.json()["usage"]
                told += usage["total_tokens"]
                requests += 1
            process.kill()
            await process.wait()
    assert list((tmp_path / "usage").glob("*.rows"))  # or nothing was killed before it was stored
    async with serving(*arguments, command=SERVE) as (process, _):
        await until(lambda: not list((tmp_path / "usage").glob("*.rows")))
        process.terminate()
        await process.wait()
    store = await IdentityStore.open(str(tmp_path / "i.db"))
    async with store.reading() as connection:
        day = (await connection.exec_driver_sql("select max(day) from id_usage")).scalar()
    await store.close()
    month = str(day)[:7]
    found = await used(tmp_path, month)
    assert (found.requests, found.prompt_tokens + found.generated_tokens) == (requests, told)


async def test_a_batch_whose_acknowledgement_was_lost_counts_once(tmp_path: Path) -> None:
    store = await IdentityStore.open(str(tmp_path / "i.db"))
    meter, journal = Meter(), UsageJournal(tmp_path / "usage", "killed")
    meter.journal = journal
    meter.add(KEY, ONE, 0.0)
    batch = meter.batch()
    assert batch is not None
    meter.add(KEY, ONE, 0.0)  # of the next batch
    await store.add_usage("killed", batch.seq, list(batch.rows.items()), NOW_MS)
    living = UsageJournal(tmp_path / "usage", "living")
    assert list(living.leftovers(NOW_MS)) == []  # nobody's, while its process lives
    journal.close()
    writer = UsageWriter(Meter(), store, gateway="living", wall_ms=lambda: NOW_MS, journal=living)
    assert await writer.recover() and await writer.recover()
    await writer.close()
    assert (await used(tmp_path, "2026-09")).requests == 2
    assert [path.name for path in (tmp_path / "usage").iterdir()] == ["killed.lock"]


def test_a_state_directory_that_cannot_be_is_told_by_the_check_too(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "usage").write_text("no folder")
    make_secret(tmp_path / "salt")
    profile = tmp_path / "team.toml"
    profile.write_text(
        f'[engine]\nname = "scripted"\n[identity]\nurl = "{tmp_path / "i.db"}"\nsalt_file = "{tmp_path / "salt"}"\n'
    )
    config = msgspec.structs.replace(load_config(profile=profile), state_dir=tmp_path / "state")
    with pytest.raises(ConfigError, match=r"state_dir: .* is no folder; name a directory where usage can wait"):
        plan(config)


def test_half_a_line_costs_its_row_and_a_disk_that_comes_back_has_all(tmp_path: Path) -> None:
    folder = tmp_path / "usage"
    meter, journal = Meter(), UsageJournal(folder, "killed")
    meter.journal = journal
    meter.add(KEY, ONE, 0.0)
    folder.rename(tmp_path / "away")
    batch = meter.batch()
    assert batch is not None
    meter.stored(batch.seq)
    for _ in range(3):
        meter.add(KEY, ONE, 0.0)  # the disk is gone: nobody waits and nothing is raised
    (tmp_path / "away").rename(folder)
    meter.add(KEY, ONE, 0.0)
    meter.add(KEY, ONE, 0.0)
    journal.close()
    path = folder / "killed.2.rows"
    with path.open("ab") as file:
        file.write(json.dumps([[*KEY], [1, 2]]).encode()[:-4])
    with contextlib.closing(UsageJournal(folder, "next")) as following:
        left = {one.seq: one for one in following.leftovers(NOW_MS)}
    assert left[2].rows == {KEY: UsageRow(5, 35, 0, 10, 0, 0)}


def test_a_store_that_is_away_for_long_fills_no_disk(tmp_path: Path) -> None:
    meter, journal = Meter(), UsageJournal(tmp_path / "usage", "long")
    meter.journal = journal
    for _ in range(30_000):
        meter.add(KEY, ONE, 0.0)
    assert sum(path.stat().st_size for path in (tmp_path / "usage").iterdir()) < 1_200_000
    journal.close()
    with contextlib.closing(UsageJournal(tmp_path / "usage", "next")) as following:
        (left,) = following.leftovers(NOW_MS)
    assert left.rows[KEY].requests == 30_000
