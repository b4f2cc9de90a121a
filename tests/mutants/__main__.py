"""`make mutants`: breaks the code in places drawn by a seed, one at a time, and sees whether the tests notice (CONTRIBUTING.md).

Everything happens in a copy of the checkout; no file of the working tree is ever changed.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import attrs
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import TestOutcome, WorkResult

from mutants.chart import ROOT, Known, read_chart, read_survivors
from mutants.sample import Mutant, draw

__all__ = ["main"]

AIM = 0.9
LOOPS = 5
"""A process that takes so many times the processor time that the tests take together is in a loop, however busy the machine is."""

STUCK_S = 90
"""A test that waits this long waits for ever."""

WALL_S = 3600
UNMARKED = "not (rules or slow or soak or editors or vllm or fleet)"
PYTEST = f"-q -x -m {shlex.quote(UNMARKED)} --timeout={STUCK_S} -p no:randomly -p no:cacheprovider -p no:schemathesis -p no:pytest-lsp"
PROFILE = "--hypothesis-profile=mutants --hypothesis-seed=0"


@dataclass(frozen=True)
class Tried:
    mutant: Mutant
    by: str
    """"own: TEST" or "wider: TEST", of the test that noticed; empty where none did."""


def main() -> int:
    chart = read_chart()
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument(
        "--room", action="append", choices=[room.name for room in chart.rooms], help="only these; default all"
    )
    parser.add_argument(
        "--key", action="append", default=[], help="only the mutants whose key begins so, as the report prints it"
    )
    parser.add_argument("--resume", action="store_true", help="try only what the runs before left untried or unnoticed")
    parser.add_argument("--list", action="store_true", help="print the sample and run nothing")
    arguments = parser.parse_args()
    if trouble := chart.missing() + chart.unmapped():
        sys.exit("\n".join(["tests/mutants/map.toml is behind the tree:", *trouble]))
    with checkout() as copy:
        os.chdir(copy)
        store = ROOT / "results" / "mutants.sqlite"
        store.parent.mkdir(exist_ok=True)
        rooms = [room for room in chart.rooms if room.name in (arguments.room or [room.name])]
        sample = draw(replace(chart, rooms=rooms), copy)
        sample = [one for one in sample if not arguments.key or one.key.startswith(tuple(arguments.key))]
        print(f"{len(sample)} mutants of seed {chart.seed}", flush=True)
        if arguments.list:
            print(*sample, sep="\n")
            return 0
        with use_db(store) as db:
            if not arguments.resume:
                db.clear()
            tried = [tries(db, one) for one in sample]
    return report(tried, read_survivors(), whole=not (arguments.room or arguments.key))


@contextlib.contextmanager
def checkout() -> Iterator[Path]:
    """A copy of the working tree without what git ignores; packages are imported from it, by processes of tests too."""
    listed = subprocess.run(
        ["git", "ls-files", "-zco", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    )
    with tempfile.TemporaryDirectory(prefix="foretype-mutants-") as folder:
        copy = Path(folder).resolve() / "foretype"
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, copy / name)
        project = tomllib.loads((copy / "pyproject.toml").read_text("utf-8"))
        folders = [copy / one for one in project["tool"]["pyright"]["extraPaths"]]
        os.environ["PYTHONPATH"] = os.pathsep.join(map(str, folders))
        for package in [found for folder in folders for found in folder.glob("foretype_*")]:
            seen = subprocess.run(
                [sys.executable, "-c", f"import {package.name}; print({package.name}.__file__)"],
                capture_output=True,
                check=True,
            )
            if not Path(seen.stdout.decode().strip()).is_relative_to(copy):
                sys.exit(f"{package.name} is not imported from the copy, so nothing would be tested: {seen.stdout!r}")
        yield copy


def command(tests: Sequence[str], cpu_s: int) -> str:
    """For cosmic-ray, which splits it as a shell would.

    Args:
        cpu_s: of processor time, after which a process is ended.
    """
    pytest = f"exec {shlex.quote(sys.executable)} -m pytest {PYTEST} {PROFILE} {shlex.join(tests)}"
    return shlex.join(["sh", "-c", f"ulimit -t {cpu_s}; {pytest}"])


@cache
def limit_s(tests: tuple[str, ...]) -> int:
    """The processor time that a mutant's tests get. Ends the run where they fail with nothing broken: they would notice everything."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Not by cosmic-ray, which has Python keep nothing of what it compiles: this is what later runs find compiled.
    compiling = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        shlex.split(command(tests, WALL_S)), check=False, env=compiling, capture_output=True, text=True, timeout=WALL_S
    )
    if done.returncode:
        sys.exit(f"{' '.join(tests)} fail with nothing broken:\n{done.stdout}{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 20 + LOOPS * math.ceil(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def tries(db: WorkDB, one: Mutant) -> Tried:
    """Breaks the copy there and runs the tests. `db` (cr-html and cr-report read it) keeps how they ended, under the mutant's key."""
    before = next((result for key, result in db.results if key == one.item.job_id), None)
    by = "" if before is None else (before.output or "").partition("\n")[0]
    if not by:
        if before is None:
            db.add_work_item(one.item)
        by, result = runs(one)
        db.set_result(one.item.job_id, attrs.evolve(result, output=f"{by}\n{result.output}"))
        print(f"{by or 'NOT NOTICED'}  {one}", flush=True)
    return Tried(one, by)


def runs(one: Mutant) -> tuple[str, WorkResult]:
    own, wider = one.room.modules[one.module], one.room.wider
    for name, tests in (("own", tuple(own)), ("wider", tuple(test for test in wider if test not in own))):
        result = mutate_and_test([one.spec], command(tests, limit_s(tests)), WALL_S)
        if result.test_outcome is TestOutcome.INCOMPETENT:
            sys.exit(f"cosmic-ray could not try {one}:\n{result.output}")
        if result.test_outcome is TestOutcome.KILLED:
            return f"{name}: {first_failure(result.output or '')}", result
    return "", result


def first_failure(output: str) -> str:
    """The test that pytest names, or how the run ended."""
    lines = [line.partition(" ") for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    named = [rest.partition(" - ")[0].removeprefix("tests/") for _, _, rest in lines]
    ends = [word for word in ("Timeout", "timeout") if word in output]
    return next(iter(named), next(iter(ends), "ended before pytest said anything"))


def report(tried: list[Tried], known: list[Known], *, whole: bool) -> int:
    """Prints shares by room and survivors. 1 where too few were noticed, one is not listed, or what is listed is no survivor."""
    print("\n  room         tried  noticed   by wider tests alone")
    for name in dict.fromkeys(one.mutant.room.name for one in tried):
        here = [one for one in tried if one.mutant.room.name == name]
        by = Counter(one.by.partition(":")[0] for one in here)
        print(f"  {name:12} {len(here):5} {len(here) - by['']:8} {by['wider']:12}")
    noticed = sum(bool(one.by) for one in tried)
    share = noticed / max(1, len(tried))
    print(f"  {'together':12} {len(tried):5} {noticed:8}   {share:.1%} (aim: {AIM:.0%})")
    reasons = {one.place: one.reason for one in known}
    survivors = [one.mutant for one in tried if not one.by]
    unknown = [one for one in survivors if one.place not in reasons]
    for one in survivors:
        print(
            f"\n  {one}\n    {reasons.get(one.place, 'NOT LISTED in tests/mutants/survivors.toml: write a test, or the reason why none can')}"
        )
    asked = {one.mutant.place for one in tried}
    alive = {one.place for one in survivors}
    stale = [one for one in known if one.place not in alive and (whole or one.place in asked)]
    for one in stale:
        print(
            f"\n  listed, but {'noticed' if one.place in asked else 'not in the sample'}: {one.module} {one.definition}\n    + {one.now}"
        )
    return 1 if unknown or stale or (whole and share < AIM) else 0


if __name__ == "__main__":
    sys.exit(main())
