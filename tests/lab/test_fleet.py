"""The fleet simulation on a hand-made trace whose result can be reckoned."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from eval.git_repo import git
from foretype_backend.engines.embedded.shadow_cache import block_keys
from foretype_backend.prefix.chain import Block
from foretype_backend.prefix.salt import Namespace
from foretype_context.prompt.profile import Profile
from foretype_context.prompt.segments import Scope
from foretype_context.tokens.tokenizer import load_tokenizer
from foretype_lab.commands import bench
from foretype_lab.fleet.break_even import SHAPES, Shape, break_even, redis_server
from foretype_lab.fleet.routing import POLICIES, SEVERAL_GATEWAYS, FleetOptions, Growth, simulate
from foretype_lab.fleet.tiers import run_tiers
from foretype_lab.fleet.trace import Call, Team, record, spread
from foretype_lab.model_files.gguf_file import read_config
from foretype_models.artifacts import locate
from typer.testing import CliRunner

BLOCK = 16


def call(time_s: float, session: str, ids: list[int]) -> Call:
    keys = block_keys(ids, BLOCK)
    chain = tuple(Block(key, at * BLOCK, (at + 1) * BLOCK, Scope.FILE, ()) for at, key in enumerate(keys))
    return Call(time_s, Namespace("t", "repo"), session, f"{session}.py", len(ids), chain)


def growing(session: int, count: int = 10) -> list[Call]:
    return [call(2.0 * at + session / 10, f"s{session}", [session] * 160 + [at] * 16) for at in range(count)]


def test_a_session_that_stays_computes_its_file_once() -> None:
    calls = growing(1)
    result = simulate(calls, "hash_session", FleetOptions(4, 64, BLOCK))
    assert result["computed_tokens"] == 176 + 9 * 16
    assert simulate(calls, "foretype", FleetOptions(4, 64, BLOCK))["computed_tokens"] == 176 + 9 * 16
    assert simulate(calls, "round_robin", FleetOptions(4, 64, BLOCK))["computed_tokens"] == 4 * 176 + 6 * 16


def test_ours_finds_what_it_predicts_and_its_load_is_even() -> None:
    calls = sorted((one for session in range(11) for one in growing(session)), key=lambda one: one.time_s)
    result = simulate(calls, "foretype", FleetOptions(3, 4096, BLOCK))
    assert result["agreement"] == 1.0
    assert sum(result["routes"].values()) == result["requests"] == 110
    assert result["cached_share"] > simulate(calls, "round_robin", FleetOptions(3, 4096, BLOCK))["cached_share"]


def test_gateways_hashed_by_repository_are_one_gateway_to_it_and_others_compute_no_less() -> None:
    calls = sorted((one for session in range(11) for one in growing(session)), key=lambda one: one.time_s)
    options = FleetOptions(3, 4096, BLOCK, gateways=2)
    one = simulate(calls, "foretype", options)
    assert simulate(calls, "gateways_by_repository", options) == one
    blind = simulate(calls, "gateways_by_session", options)
    assert sum(blind["routes"].values()) == 110
    assert one["computed_tokens"] <= blind["computed_tokens"]
    assert blind["cached_share"] > simulate(calls, "round_robin", options)["cached_share"]


def test_a_replica_that_joins_takes_what_comes_new_and_nobody_loses_a_cache() -> None:
    calls = growing(1, 20)  # from 0 to 38 seconds
    alone = simulate(calls, "foretype", FleetOptions(1, 4096, BLOCK))
    grown = simulate(calls, "foretype", FleetOptions(2, 4096, BLOCK), Growth(1, 20.0, 10.0))
    assert grown["computed_tokens"] == alone["computed_tokens"] and grown["routes"] == {"seed": 1, "sticky": 19}
    told = {at: (one["requests"], one["joined_share"]) for at, one in grown["windows"].items()}
    assert told == {0: (5, 0), 1: (5, 0), 2: (5, 0)}
    assert {one["cached_share"] for one in grown["windows"].values()} == {round(10 / 11, 4)}
    fresh = [call(30.0 + at, f"n{at}", [100 + at] * 160) for at in range(10)]
    both = sorted([*calls, *fresh], key=lambda one: one.time_s)
    spread_out = simulate(both, "foretype", FleetOptions(2, 4096, BLOCK), Growth(1, 20.0, 10.0))
    assert spread_out["windows"][2]["joined_share"] > 0.2  # who is new is sent to both


def test_every_policy_serves_every_request_and_nothing_at_all() -> None:
    for policy in (*POLICIES, *SEVERAL_GATEWAYS):
        assert simulate(growing(1), policy, FleetOptions(2, 64, BLOCK))["requests"] == 10
        assert simulate([], policy, FleetOptions(2, 64, BLOCK))["cached_share"] is None


def test_tenants_share_nothing() -> None:
    calls = spread(growing(1), 3)
    tiers = run_tiers(calls, {"l1": 4096}, block_tokens=BLOCK, retirement=True)
    assert tiers["computed_tokens"] == 3 * (176 + 9 * 16)


def test_a_lower_tier_finds_what_the_upper_one_lost() -> None:
    calls = sorted((one for session in range(4) for one in growing(session)), key=lambda one: one.time_s)
    small = run_tiers(calls, {"l1": 16}, block_tokens=BLOCK, retirement=False)
    both = run_tiers(calls, {"l1": 16, "l2": 4096}, block_tokens=BLOCK, retirement=False)
    assert small["computed_tokens"] > both["computed_tokens"] == 4 * (176 + 9 * 16)
    assert both["hit_rate_by_tier"]["l2"] > 0
    assert both["hit_rate_by_scope"]["repository"] is None


def test_colleagues_share_the_repository_part(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    package = "".join(f"def helper_{at}(value: int) -> int:\n    return value + {at}\n\n\n" for at in range(40))
    for name in ("before", "ada", "bob"):
        (tmp_path / f"{name}.py").write_text(package if name == "before" else f"import before\n\nprint('{name}')\n")
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-qm", name)
    shipped = locate()
    tokenizer = load_tokenizer(shipped.tokenizer_path)
    profile = Profile(model="m", grammar=shipped.grammar, tokenizer_digest=tokenizer.digest, layout="psm_growing")
    calls = record([Team(tmp_path, 2, 2)], tokenizer, profile, block_tokens=BLOCK)
    assert len({one.session for one in calls}) == 2
    shared = set.intersection(
        *({block.key for block in one.unsalted if block.scope is Scope.REPOSITORY} for one in calls)
    )
    assert len(shared) > 5, "files of their own, one part in front"


@pytest.mark.parametrize("sizes", ["", "1,2,3,4", "many", "8"])
def test_bad_sizes_are_refused_by_name(sizes: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(bench, ["prefix-cache", str(tmp_path), "--sizes", sizes])
    assert result.exit_code == 2


@pytest.mark.parametrize("command", ["routing", "prefix-cache"])
def test_the_commands_type_the_commits_of_a_repository_and_say_what_was_cached(command: str, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    for at in range(2):
        (tmp_path / "a.py").write_text("".join(f"def f{n}(x):\n    return x + {n}\n" for n in range(20 + 10 * at)))
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-qm", f"{at}")
    small = [str(tmp_path), "--developers", "2", "--commits", "1", "--requests", "5"]
    small += ["--replicas", "2", "--sessions", "2"] if command == "routing" else ["--tenants", "2"]
    table = CliRunner().invoke(bench, [command, *small])
    assert table.exit_code == 0 and "%" in table.output, table.output
    result = json.loads(CliRunner().invoke(bench, [command, *small, "--json"]).stdout)
    rows = (
        result["replicas"]["2"]
        if command == "routing"
        else {name: result[name] for name in ("lru", "range_retirement")}
    )
    assert len(rows) >= 2 and all(0 < row["cached_share"] < 1 for row in rows.values())


def test_growth_says_the_share_of_each_window_beside_one_and_two(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    for at in range(3):
        lines = "" if at == 1 else "".join(f"def f{n}(x):\n    return x + {n}\n" for n in range(20 + 10 * at))
        (tmp_path / "a.py").write_text(lines)  # the second only takes away
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-qm", f"{at}")
    small = [str(tmp_path), "--developers", "1", "--commits", "2", "--requests", "20", "--sessions", "2", "--at", "5"]
    table = CliRunner().invoke(bench, ["growth", *small])
    assert table.exit_code == 0 and "%" in table.output, table.output
    result = json.loads(CliRunner().invoke(bench, ["growth", *small, "--json"]).stdout)
    assert set(result["windows"]) == {"1 to 2", "1", "2"} and result["requests"] == 40


def test_no_repository_is_an_error_with_its_name(tmp_path: Path) -> None:
    result = CliRunner().invoke(bench, ["routing", str(tmp_path)])
    assert result.exit_code == 2


def test_break_even_measures_a_real_redis_and_a_slower_link_wins_less() -> None:
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    with redis_server() as url:
        shape = Shape("small", 1024)
        rows = break_even(url, shapes=[shape], tokens=(64, 256), repeats=2, rates={"slow": 1.0, "fast": 1e12})
    assert [row["megabytes"] for row in rows] == [0.07, 0.26]
    for row in rows:
        below = row["wins_below_tokens_per_s"]
        assert below["measured"] >= below["100_gbit"] >= below["25_gbit"] >= below["10_gbit"] > 0
        assert row["wins"] == {"slow": dict.fromkeys(below, True), "fast": dict.fromkeys(below, False)}
        assert row["load_ms"]["measured"] > 0


def test_the_shipped_shape_is_that_of_the_shipped_file() -> None:
    shipped = locate()
    config = read_config(shipped.path)
    expected = 2 * config["layers"] * config["kv_heads"] * config["head_width"] * 4
    assert next(one for one in SHAPES if one.name.startswith("shipped")).bytes_per_token == expected
