"""The sweep behind docs/measurements/shipped-model.md: commits of a size that is typed, answers asked for once, a stopped run that goes on."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from eval.git_repo import git
from foretype_eval.errors import RepositoryError
from foretype_eval.gateway import GatewayOptions
from foretype_eval.replay.results import CommitRow, paired_ratio
from foretype_lab.results.page import _choice, page  # pyright: ignore[reportPrivateUsage]
from foretype_lab.results.sweep import SweepOptions, choose, pick_commits, run_sweep

OWN_AND_BETTER = (("own", 80), ("better", 76))
TEXT = "".join(f"def check_{i}(value):\n    assert value == {i}\n\n\n" for i in range(3))


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q")
    text = TEXT
    for added in (
        "def check_a(value):\n    assert value\n",
        "x = 1\n",
        "def check_b(value):\n    assert value\n",
        "y = 'long'\n" * 90,
    ):
        text += added
        (folder / "checks.py").write_text(text)
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", "more")
    return folder


def row(commit: str, keys_with: int, **more: int) -> CommitRow:
    zero = {
        name: 0
        for name in CommitRow.__struct_fields__
        if name not in ("system", "commit", "by_source", "slices", "stages_ms")
    }
    return CommitRow(
        **{
            "system": "network",
            "commit": commit,
            "by_source": {},
            **zero,
            "keys_without": 100,
            "keys_with": keys_with,
            **more,
        }
    )


def test_commits_that_nobody_types_are_passed_over(repo: Path, tmp_path: Path) -> None:
    options = SweepOptions(repos=[repo], out=tmp_path / "out")
    sizes = [sum(len(s.target) for s in commit.stretches) for commit in pick_commits(repo, options, 10_000)]
    assert len(sizes) == 2 and all(30 <= size <= 260 for size in sizes)
    with pytest.raises(RepositoryError, match="name more repositories"):
        run_sweep(msgspec.structs.replace(options, keys_max=31), progress=lambda *_: None)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_sweep_asks_once_for_each_prompt_and_goes_on_where_it_stopped(repo: Path, tmp_path: Path) -> None:
    options = SweepOptions(
        repos=[repo],
        out=tmp_path / "out",
        keys=60,
        layouts=["psm_line_last"],
        debounce_ms=[0.0, 75.0],
        gateway=GatewayOptions(engine="scripted"),
    )
    ticks = iter([0.0, *[1.0] * 6, *[1e9] * 1000])
    part = run_sweep(msgspec.structs.replace(options, minutes=1.0), progress=lambda *_: None, clock=lambda: next(ticks))
    assert part["left_out"] and part["systems"]
    assert "Not measured yet" in page(part, "foretype eval results")
    first = run_sweep(options, progress=lambda *_: None)
    requests = sum(entry["requests"] for entry in first["sweep"])
    assert 0 < first["model_requests"] < requests, "settings share the answers to equal prompts"
    assert {(e["debounce_ms"], e["client"]) for e in first["sweep"]} == {
        (d, c) for d in (0.0, 75.0) for c in ("reuse", "strict")
    }
    assert not first["left_out"]
    again = run_sweep(options, progress=lambda *_: None)
    assert again["model_requests"] == 0
    assert again["sweep"] == first["sweep"] and again["systems"] == first["systems"]
    text = page(first, "foretype eval results")
    assert "`psm_line_last`, 75 ms, reuse" in text and "## Default settings" in text
    assert "check_a" not in text and "check_a" not in "".join(p.read_text() for p in (tmp_path / "out").iterdir())


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_answers_are_kept_between_runs_only_where_the_user_says(repo: Path, tmp_path: Path) -> None:
    options = SweepOptions(
        repos=[repo],
        out=tmp_path / "first",
        keys=60,
        layouts=["psm_line_last"],
        debounce_ms=[75.0],
        answers=tmp_path / "answers.jsonl",
        gateway=GatewayOptions(engine="scripted"),
    )
    first = run_sweep(options, progress=lambda *_: None)
    assert first["model_requests"] > 0
    kept = tmp_path / "answers.jsonl"
    assert kept.stat().st_mode & 0o777 == 0o600
    lines = kept.read_bytes().splitlines()
    kept.write_bytes(b"\n".join(lines) + b"\n" + lines[0][:20])  # killed while it wrote
    elsewhere = tmp_path / "second"
    elsewhere.mkdir()
    for trace in (tmp_path / "first").glob("trace-*"):
        (elsewhere / trace.name).write_bytes(trace.read_bytes())
    again = run_sweep(msgspec.structs.replace(options, out=elsewhere), progress=lambda *_: None)
    assert again["model_requests"] == 0 and again["sweep"] == first["sweep"]


def chosen_of(right: int, **keys: tuple[int, int]) -> str:
    """The choice among settings of which each has (keystrokes per commit of 100, requests)."""
    # Settings that differ alike in every commit would have no interval.
    noise = {"own": (0, 1, 2, 3, 0, 1, 2, 3), "little": (0, 1, 2, 3, 2, 1, 2, 1)}
    rows = {
        name: [
            row(str(n), with_ + noise.get(name, (1, 1, 2, 3, 0, 1, 2, 2))[n], sessions_right=right) for n in range(8)
        ]
        for name, (with_, _) in keys.items()
    }
    sweep = [
        {"name": name, "ksr": 1 - sum(r.keys_with for r in rows[name]) / 800, "requests": requests}
        for name, (_, requests) in keys.items()
    ]
    chosen = choose(sweep, rows, default="own", seed=0)
    assert chosen is not None
    return chosen["choice"]["name"]


def test_a_default_moves_only_for_what_the_whole_interval_says() -> None:
    assert chosen_of(10, own=(80, 100), better=(76, 120)) == "better"
    assert chosen_of(10, own=(80, 100), cheaper=(80, 40), worse=(82, 10)) == "cheaper"
    assert chosen_of(10, own=(80, 100), hardly_cheaper=(80, 90)) == "own"
    assert chosen_of(10, own=(76, 100), worse=(80, 10)) == "own"
    # What is gained must be worth the requests, by the measure that lets a cheaper setting lose: else two take turns.
    assert chosen_of(10, own=(80, 80), little=(79, 100)) == "own"
    assert chosen_of(10, own=(80, 81), little=(79, 100)) == "little"
    # One right suggestion in each commit is no evidence, whatever a bootstrap makes of it.
    assert chosen_of(1, own=(80, 100), better=(76, 120)) == "own"
    assert choose([], {}, default="own", seed=0) is None


def test_without_an_interval_no_default_moves() -> None:
    """One commit, or commits that are all alike: a bootstrap gave an interval without a width, far from zero."""
    for commits in (1, 8):
        rows = {name: [row(str(n), keys, sessions_right=90) for n in range(commits)] for name, keys in OWN_AND_BETTER}
        sweep = [{"name": name, "ksr": 1 - keys / 100, "requests": 10} for name, keys in OWN_AND_BETTER]
        chosen = choose(sweep, rows, default="own", seed=0)
        assert chosen is not None and chosen["choice"]["name"] == "own" and chosen["best"]["name"] == "better"
        assert chosen["best"]["gain"] == [0.04, None, None]
        names = {"own": "network psm_line_last 75 reuse", "better": "network spm 0 strict"}
        told = {key: one | {"name": names[one["name"]]} for key, one in chosen.items() if isinstance(one, dict)}
        assert "+4.0 points (no interval)" in _choice({"chosen": chosen | told})[-1]


def test_the_page_says_why_a_default_stays() -> None:
    default = {"name": "network psm_line_last 75 reuse", "ksr": 0.1, "requests": 10, "gain": [0.0, 0.0, 0.0]}
    best = {"name": "network spm 0 strict", "ksr": 0.12, "requests": 90, "gain": [0.02, -0.01, 0.05]}
    chosen = {"default": default, "best": best, "choice": default, "right": 3, "right_min": 30}
    (_, _, text) = _choice({"chosen": chosen})
    assert "`psm_line_last`, 75 ms, reuse client** stays: only 3 suggestions were right" in text
    assert "+2.0 points (-1.0 to +5.0)" in text
    (_, _, moved) = _choice({"chosen": chosen | {"choice": best, "right": 90}})
    assert "`spm`, 0 ms, strict client** takes the place of `psm_line_last`" in moved


def test_a_paired_difference_is_narrow_where_both_move_together() -> None:
    first = [row(str(n), 60 + 3 * n) for n in range(10)]
    second = [row(str(n), 58 + 3 * n + n % 2) for n in range(10)]
    found = paired_ratio(first, second, "keys_with", "keys_without")
    assert found is not None and found.low is not None and found.high is not None
    assert found.estimate == pytest.approx(0.015) and 0.01 < found.low < found.estimate < found.high < 0.02
    alike = paired_ratio(first, [row(str(n), 58 + 3 * n) for n in range(10)], "keys_with", "keys_without")
    assert alike is not None and alike[:3] == (pytest.approx(0.02), None, None)
    assert paired_ratio(first, second, "late", "answered") is None
    with pytest.raises(ValueError, match="the same commits"):
        paired_ratio(first, second[1:], "keys_with", "keys_without")
