"""Brings sources onto this machine, each through its registry's ordinary client. What is there already stays."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from foretype_lab.corpus.never_train import normalise
from foretype_lab.corpus.sources import Commit

Failures = list[str]
"""What could not be had, each with the client's last line. One missing source is no reason to stop."""


def _run(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> str | None:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, env={**os.environ, **(environment or {})}
    )
    return (done.stderr.strip().splitlines() or ["?"])[-1] if done.returncode else None


def _all(wanted: Iterable[str], fetch: Callable[[str], str | None], workers: int) -> Failures:
    def one(item: str) -> str | None:
        failure = fetch(item)
        return f"{item}: {failure}" if failure else None

    with ThreadPoolExecutor(workers) as pool:
        return [failure for failure in pool.map(one, wanted) if failure]


def wheels(projects: tuple[str, ...], folder: Path, *, workers: int = 6) -> Failures:
    """Downloads wheels; nothing of a package is executed."""
    return _pip(projects, folder, "*.whl", ["--only-binary=:all:"], workers)


def sdists(projects: tuple[str, ...], folder: Path, *, workers: int = 2) -> Failures:
    """Downloads sdists. pip asks each one's build backend for its metadata, which runs code of the package."""
    return _pip(projects, folder, "*.tar.gz", ["--no-binary=:all:"], workers)


def _pip(projects: tuple[str, ...], folder: Path, pattern: str, only: list[str], workers: int) -> Failures:
    folder.mkdir(parents=True, exist_ok=True)
    present = {normalise(re.split(r"-(?=\d)", path.name)[0]) for path in folder.glob(pattern)}
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-deps", *only, "--dest", str(folder)]
    wanted = [project for project in projects if normalise(project.split("==")[0]) not in present]
    return _all(wanted, lambda project: _run([*command, project], folder), workers)


def npm(packages: tuple[str, ...], folder: Path, *, workers: int = 4) -> Failures:
    """Packs npm tarballs; ``--ignore-scripts``, so nothing of a package is executed."""
    folder.mkdir(parents=True, exist_ok=True)

    def fetch(package: str) -> str | None:
        name = package.rsplit("@", 1)[0] if "@" in package[1:] else package
        stem = name.lstrip("@").replace("/", "-")
        if any(re.fullmatch(re.escape(stem) + r"-\d+\.\d+\.\d+.*\.tgz", path.name) for path in folder.glob("*.tgz")):
            return None
        return _run(["npm", "pack", "--silent", "--ignore-scripts", package], folder)

    return _all(packages, fetch, workers)


def debian(packages: tuple[str, ...], folder: Path, sources: Path = Path("/etc/apt/sources.list.d")) -> Failures:
    """Downloads Debian source packages with a list of its own, so that the machine's configuration stays as it is.

    Args:
        packages: source names, each with ``=version`` or without.
        folder: where the ``.dsc`` files and tarballs go.
        sources: the machine's lists (deb822 form); their archives are used with ``Types: deb-src``.
    """
    state = folder / "apt"
    for part in ("lists/partial", "cache/archives/partial"):
        (state / part).mkdir(parents=True, exist_ok=True)
    texts = [path.read_text("utf-8") for path in sorted(sources.glob("*.sources"))]
    lists = state / "src.sources"
    lists.write_text("\n".join(re.sub(r"(?m)^Types:.*$", "Types: deb-src", text) for text in texts))
    configuration = state / "apt.conf"
    configuration.write_text(
        f'Dir::Etc::sourcelist "{lists}";\nDir::Etc::sourceparts "-";\n'
        f'Dir::State::lists "{state / "lists"}";\nDir::Cache "{state / "cache"}";\nAPT::Sandbox::User "root";\n'
    )
    environment = {"APT_CONFIG": str(configuration)}
    wanted = [package for package in packages if not any(folder.glob(package.split("=")[0] + "_*.dsc"))]
    if wanted and (failure := _run(["apt-get", "update"], folder, environment)):
        return [f"apt-get update: {failure}"]
    command = ["apt-get", "source", "--download-only", "--quiet"]

    def fetch(package: str) -> str | None:
        failure = _run([*command, package], folder, environment)
        if failure:
            # A description without its tarballs would stop the build later.
            for path in folder.glob(package.split("=")[0] + "_*.dsc"):
                path.unlink()
        return failure

    return _all(wanted, fetch, 1)


def commits(wanted: tuple[Commit, ...], folder: Path) -> Failures:
    """Fetches single commits into bare repositories under ``folder/owner/name``."""
    failures: Failures = []
    for item in wanted:
        location = folder / item.name
        if location.exists():
            continue
        location.mkdir(parents=True)
        for command in (
            ["git", "init", "--quiet", "--bare", "."],
            ["git", "fetch", "--quiet", "--depth", "1", item.url, item.commit],
        ):
            if failure := _run(command, location):
                failures.append(f"{item.url}: {failure}")
                break
    return failures
