"""`foretype bench routing`, `growth` and `prefix-cache`: one multi-user trace, without engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from foretype_context.errors import TokenizerError
from foretype_context.prompt.profile import Profile
from foretype_context.terminal import console
from foretype_context.tokens.tokenizer import load_tokenizer
from foretype_eval.console import fail, print_json, progress_bars
from foretype_eval.errors import RepositoryError
from foretype_models.artifacts import locate
from foretype_models.errors import ArtifactError
from rich.table import Table

from foretype_lab.fleet.routing import POLICIES, SEVERAL_GATEWAYS, FleetOptions, Growth, simulate
from foretype_lab.fleet.tiers import REFERENCE_HIT_RATES, run_tiers
from foretype_lab.fleet.trace import Call, Team, record, spread

__all__ = ["growth", "prefix_cache", "routing"]

Repos = Annotated[list[Path], typer.Argument(help="Git repositories; each is a team's.")]
Developers = Annotated[int, typer.Option(min=1, help="Of each team.")]
Commits = Annotated[
    int, typer.Option(min=1, help="Newest commits of each repository, shared out among its developers.")
]
Requests = Annotated[int, typer.Option(min=1, help="Most requests of one developer.")]
Tenants = Annotated[int, typer.Option(min=1, help="Tenants that do the same work under other salts.")]
Block = Annotated[int, typer.Option(min=1, max=1024, help="Tokens in a block.")]
PREFILL_RATES = {"7B on an H100, research estimate": 33_000.0, "shipped model on two cores": 15_000.0}
"""Prefill rates that `--break-even` gives a verdict for: 4,096 tokens in 125 ms; 1,500 tokens in 100 ms (`bench latency`)."""

Progress = Callable[[str, int, int], None]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def _calls(
    repos: Sequence[Path], developers: int, commits: int, requests: int, block: int, progress: Progress
) -> list[Call]:
    shipped = locate()
    tokenizer = load_tokenizer(shipped.tokenizer_path)
    profile = Profile(model="fleet", grammar=shipped.grammar, tokenizer_digest=tokenizer.digest, layout="psm_growing")
    teams = [Team(repo.resolve(), developers, commits) for repo in repos]
    calls = record(teams, tokenizer, profile, block_tokens=block, requests_max=requests, progress=progress)
    if not calls:
        fail("the commits hold nothing to type; take others with --commits, or another repository")
    return calls


def routing(
    repos: Repos,
    as_json: AsJson = False,
    replicas: Annotated[list[int] | None, typer.Option(min=1, help="Fleet size; may be repeated.")] = None,
    developers: Developers = 8,
    commits: Commits = 8,
    requests: Requests = 40,
    sessions: Annotated[
        int, typer.Option(min=1, help="Developers per replica; tenants are added until there are.")
    ] = 24,
    capacity: Annotated[int, typer.Option(min=1, help="Tokens that a replica's cache holds.")] = 131_072,
    pace: Annotated[float, typer.Option(min=0.01, help="How many times faster than people the requests come.")] = 4.0,
    gateways: Annotated[
        int, typer.Option(min=1, help="With several, ours is measured with so many before the fleet, too.")
    ] = 1,
    block: Block = 16,
) -> None:
    """Cached share and evenness of load over simulated replicas, beside simpler ways to route."""
    sizes = replicas or [2, 8, 64]
    policies = [*POLICIES, *(SEVERAL_GATEWAYS if gateways > 1 else ())]
    try:
        with progress_bars() as progress:
            calls = _calls(repos, developers, commits, requests, block, progress)
            own = len({call.session for call in calls})
            rows: dict[str, dict[str, Any]] = {}
            for done, size in enumerate(sizes):
                progress("fleets", done, len(sizes))
                crowd = spread(calls, -(-size * sessions // own))
                options = FleetOptions(
                    size, max(capacity // block, 1), block_tokens=block, pace=pace, gateways=gateways
                )
                rows[str(size)] = {name: simulate(crowd, name, options) for name in policies}
    except (RepositoryError, ArtifactError, TokenizerError, OSError) as error:
        fail(str(error))
    result = {
        "repositories": [repo.resolve().name for repo in repos],
        "developers": developers,
        "sessions_per_replica": sessions,
        "block_tokens": block,
        "capacity_tokens": capacity,
        "pace": pace,
        "gateways": gateways,
        "replicas": rows,
    }
    if as_json:
        print_json(result)
        return
    table = Table(title=f"{sessions} developers a replica, caches of {capacity:,} tokens", title_justify="left")
    for column in ("replicas", "policy", "cached", "TTFT p50", "p99 ms", "computed max/mean", "in flight max/mean"):
        table.add_column(column, justify="left" if column == "policy" else "right")
    for size, found in rows.items():
        for name, row in found.items():
            table.add_row(
                size,
                name,
                f"{row['cached_share']:.1%}",
                f"{row['ttft_ms']['p50']:.1f}",
                f"{row['ttft_ms']['p99']:.1f}",
                f"{row['imbalance']:.2f}",
                "–" if row["in_flight_imbalance"] is None else f"{row['in_flight_imbalance']:.2f}",
            )
    console().print(table)


def growth(
    repos: Repos,
    as_json: AsJson = False,
    developers: Developers = 8,
    commits: Commits = 64,
    requests: Requests = 2400,
    sessions: Annotated[int, typer.Option(min=1, help="Developers who type; tenants are added until there are.")] = 48,
    capacity: Annotated[int, typer.Option(min=1, help="Tokens that a replica's cache holds.")] = 131_072,
    at_s: Annotated[float, typer.Option("--at", min=1.0, help="Seconds after which the second replica joins.")] = 900.0,
    pace: Annotated[float, typer.Option(min=0.01, help="How many times faster than people the requests come.")] = 1.0,
    block: Block = 16,
) -> None:
    """Cached share before and after one replica becomes two, in virtual time, beside one that stays alone and two from the beginning."""
    try:
        with progress_bars() as progress:
            calls = _calls(repos, developers, commits, requests, block, progress)
            crowd = spread(calls, -(-sessions // len({call.session for call in calls})))
    except (RepositoryError, ArtifactError, TokenizerError, OSError) as error:
        fail(str(error))
    rows: dict[str, dict[int, dict[str, float]]] = {}
    for name, first, most in (("1 to 2", 1, 2), ("1", 1, 1), ("2", 2, 2)):
        options = FleetOptions(most, max(capacity // block, 1), block_tokens=block, pace=pace)
        rows[name] = simulate(crowd, "foretype", options, Growth(first, at_s))["windows"]
    result = {
        "repositories": [repo.resolve().name for repo in repos],
        "sessions": len({call.session for call in crowd}),
        "requests": len(crowd),
        "seconds": round((crowd[-1].time_s - crowd[0].time_s) / pace),
        "joins_s": at_s,
        "window_s": Growth(1, at_s).window_s,
        "windows": rows,
    }
    if as_json:
        print_json(result)
        return
    table = Table(
        title="Cached share by five minutes; the second replica joins after the first of them", title_justify="left"
    )
    windows = sorted(rows["1 to 2"])[:5]
    for column in ("replicas", "before", *(f"from {5 * (at - 1)} min" for at in windows[1:])):
        table.add_column(column, justify="right")
    for name, shares in rows.items():
        table.add_row(name, *(f"{shares[at]['cached_share']:.1%}" if at in shares else "–" for at in windows))
    console().print(table)


def prefix_cache(
    repos: Annotated[list[Path] | None, typer.Argument(help="Git repositories; each is a team's.")] = None,
    as_json: AsJson = False,
    redis: Annotated[
        bool, typer.Option("--break-even", help="Measure instead when Redis beats computing, on a redis-server here.")
    ] = False,
    developers: Developers = 8,
    commits: Commits = 16,
    requests: Requests = 300,
    tenants: Tenants = 4,
    sizes: Annotated[str, typer.Option(help="Tokens held by L1, L2, L3: device, host, Redis.")] = "32768,131072,524288",
    block: Block = 16,
) -> None:
    """Hit rate by tier and by scope, and tokens computed, with and without retirement of edited ranges."""
    if redis:
        _break_even(as_json)
        return
    if not repos:
        fail("name a repository, or measure Redis alone with --break-even")
    names = ("l1", "l2", "l3")
    held = [part.strip() for part in sizes.split(",")]
    if not 1 <= len(held) <= len(names) or not all(part.isdigit() and int(part) >= block for part in held):
        fail(f"--sizes: one to three numbers of at least {block} tokens, as in 32768,131072,524288; not {sizes!r}")
    blocks = {name: int(part) // block for name, part in zip(names, held, strict=False)}
    rows: dict[str, dict[str, Any]] = {}
    try:
        with progress_bars() as progress:
            calls = spread(_calls(repos, developers, commits, requests, block, progress), tenants)
    except (RepositoryError, ArtifactError, TokenizerError, OSError) as error:
        fail(str(error))
    for name, retirement in (("lru", False), ("range_retirement", True)):
        rows[name] = run_tiers(calls, blocks, block_tokens=block, retirement=retirement)
    result: dict[str, Any] = {
        "repositories": [repo.resolve().name for repo in repos],
        "developers": developers,
        "tenants": tenants,
        "requests": len(calls),
        "block_tokens": block,
        "sizes_tokens": {name: count * block for name, count in blocks.items()},
        "reference_hit_rates": REFERENCE_HIT_RATES,
        **rows,
    }
    if as_json:
        print_json(result)
        return
    table = Table(title=f"{len(calls):,} requests; tiers of {sizes} tokens", title_justify="left")
    for column in ("", "computed", "cached", *blocks, "global", "repository", "file", "session"):
        table.add_column(column, justify="right")
    for name, row in rows.items():
        shares = [*row["hit_rate_by_tier"].values(), *row["hit_rate_by_scope"].values()]
        shown = ["–" if share is None else f"{share:.1%}" for share in shares]
        table.add_row(name, f"{row['computed_tokens']:,}", f"{row['cached_share']:.1%}", *shown)
    console().print(table)


def _break_even(as_json: bool) -> None:
    try:  # Redis is an extra of its own: the other commands of this file do without
        from foretype_lab.errors import RedisUnavailableError
        from foretype_lab.fleet.break_even import break_even, redis_server
    except ModuleNotFoundError as error:
        fail(f"Redis cannot be measured without its client ({error}); pip install 'foretype[tiers]'")
    try:
        with redis_server() as url:
            rows = break_even(url, rates=PREFILL_RATES)
    except RedisUnavailableError as error:
        fail(str(error))
    if as_json:
        print_json({"prefill_tokens_per_s": PREFILL_RATES, "rows": rows})
        return
    table = Table(title="Loading a prefix from Redis wins below this prefill rate (tokens/s)", title_justify="left")
    for column in ("model", "tokens", "MB", "store ms", "load ms", *rows[0]["wins_below_tokens_per_s"]):
        table.add_column(column, justify="left" if column == "model" else "right")
    for row in rows:
        limits = [f"{limit:,}" for limit in row["wins_below_tokens_per_s"].values()]
        table.add_row(
            row["model"],
            f"{row['tokens']:,}",
            f"{row['megabytes']:.1f}",
            f"{row['store_ms']:.1f}",
            f"{row['load_ms']['measured']:.1f}",
            *limits,
        )
    console().print(table)
