"""From the source list to what training reads: ``python -m foretype_lab.corpus.prepare STEP --work DIR``.

Steps, in order: ``download`` (wheels and other sources), ``corpus`` (shards and manifest), ``verify`` (the
shards, read back), ``store`` (text stores).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from foretype_lab.corpus import build, sources
from foretype_lab.corpus import download as downloading
from foretype_lab.corpus import verify as verifying
from foretype_lab.corpus.never_train import NeverTrain, normalise
from foretype_lab.corpus.shards import read_shards
from foretype_lab.corpus.store import build_store

_CORPUS = Path(__file__).parents[2] / "corpus"
_SOURCES = _CORPUS / "sources.toml"


def manifest_of(plan: Path) -> Path:
    """The manifest beside a source list."""
    return plan.with_name("manifest.json")


def download(work: Path, plan_file: Path) -> None:
    """Downloads the sources of a list, at the versions of its manifest where it has them, and the check's."""
    plan = sources.Plan.load(plan_file)
    never = NeverTrain.load(_CORPUS / "never_train.toml")
    pinned = _versions(manifest_of(plan_file))

    def at_version(names: tuple[str, ...], kind: str, mark: str) -> tuple[str, ...]:
        found = {name: pinned.get((kind, _stored_as(name))) for name in names if mark not in name[1:]}
        return tuple(f"{name}{mark}{found[name]}" if found.get(name) else name for name in names)

    failures = downloading.wheels(at_version(plan.projects, "wheel", "=="), work / "wheels")
    failures += downloading.wheels(never.content_check, work / "never")
    failures += downloading.sdists(at_version(plan.sdists, "sdist", "=="), work / "sdists")
    failures += downloading.npm(at_version(plan.npm, "npm", "@"), work / "npm")
    failures += downloading.debian(at_version(plan.debian, "debian", "="), work / "debian") if plan.debian else []
    failures += downloading.commits(plan.commits + plan.never_train, work / "repositories")
    for failure in failures:
        _say(f"not downloaded: {failure}")


def _stored_as(name: str) -> str:
    """How a manifest has a name of a list: an npm package with its scope in one word."""
    return normalise(name.lstrip("@").replace("/", "-"))


def _versions(manifest: Path) -> dict[tuple[str, str], str]:
    """Version of each source of a manifest, by kind and name: `fabric` is a wheel and an npm package."""
    if not manifest.exists():
        return {}
    listed = json.loads(manifest.read_text())["sources"]
    return {(item.get("kind", "wheel"), _stored_as(item["name"])): item["version"] for item in listed}


def corpus(work: Path, benchmarks: Path | None, plan_file: Path) -> None:
    """Builds the shards and writes the manifest beside the source list."""
    plan = sources.Plan.load(plan_file)
    repositories = work / "repositories"
    others = [
        *sources.open_sdists(work / "sdists"),
        *sources.open_npm(work / "npm"),
        *sources.open_debian(work / "debian"),
        *sources.open_commits(plan.commits, repositories),
    ]
    listed = sources.listed(plan)
    manifest = build.build(
        plan,
        NeverTrain.load(_CORPUS / "never_train.toml"),
        work / "wheels",
        work / "never",
        benchmarks,
        work / "corpus",
        others=[source for source in others if source.kind == "git" or source.name in listed],
        never_others=list(sources.open_commits(plan.never_train, repositories)),
    )
    build.write_manifest(manifest, manifest_of(plan_file))
    _say(json.dumps(manifest["totals"], indent=1))


def verify(work: Path, benchmarks: Path | None, plan_file: Path) -> None:
    """Reads the shards back, as training would, and fails where one holds what must not be trained on."""
    never = sources.open_commits(sources.Plan.load(plan_file).never_train, work / "repositories")
    texts = build.never_train_texts([*sources.open_wheels(work / "never"), *never], benchmarks)
    manifest = json.loads(manifest_of(plan_file).read_text())
    faults = list(verifying.faults(manifest, work / "corpus", texts))
    for fault in faults:
        _say(fault)
    if faults:
        raise SystemExit(f"{len(faults)} faults; build the corpus again, and train on nothing before it verifies")
    _say(f"{manifest['totals']['splits']['train']['files']} training files: nothing that must not be trained on")


def store(work: Path) -> None:
    """Builds the text stores that training samples from."""
    for split in ("train", "validation"):
        build_store(read_shards(work / "corpus", split), work / "store" / split)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Prepare what training reads.")
    parser.add_argument("step", choices=["download", "corpus", "verify", "store", "all"])
    parser.add_argument("--work", type=Path, required=True, help="folder for wheels, shards and stores (some 4 GB)")
    parser.add_argument("--benchmarks", type=Path, help="folder with HumanEval-Infilling files, for the content check")
    options = parser.parse_args()
    steps = {
        "download": lambda: download(options.work, _SOURCES),
        "corpus": lambda: corpus(options.work, options.benchmarks, _SOURCES),
        "verify": lambda: verify(options.work, options.benchmarks, _SOURCES),
        "store": lambda: store(options.work),
    }
    for name, step in steps.items():
        if options.step in (name, "all"):
            step()


if __name__ == "__main__":
    main()
