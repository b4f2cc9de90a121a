"""From the source list to what training reads: ``python -m foretype_models.prepare STEP --work DIR``.

Steps, in order: ``download`` (wheels), ``corpus`` (shards and manifest), ``tokenizer``, ``store`` (text stores).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from foretype_models.artifacts import FOLDER

_MODELS = Path(__file__).parent.parent
TOKENIZER_SAMPLE_BYTES = 60_000_000


def download(work: Path) -> None:
    """Downloads the wheels of the source list, at the versions of the manifest where it has them, and the check's."""
    from foretype_models.corpus import sources
    from foretype_models.corpus.never import NeverTrain, normalise

    plan = sources.Plan.load(_MODELS / "corpus" / "sources.toml")
    never = NeverTrain.load(_MODELS / "corpus" / "never_train.toml")
    manifest = _MODELS / "corpus" / "manifest.json"
    pinned: dict[str, str] = {}
    if manifest.exists():
        pinned = {item["name"]: item["version"] for item in json.loads(manifest.read_text())["sources"]}
    wanted = tuple(
        f"{name}=={pinned[normalise(name)]}" if normalise(name) in pinned else name for name in plan.projects
    )
    failures = sources.download(wanted, work / "wheels")
    failures += sources.download(never.content_check, work / "never")
    for failure in failures:
        _say(f"not downloaded: {failure}")


def corpus(work: Path, benchmarks: Path | None) -> None:
    """Builds the shards and writes ``models/corpus/manifest.json``."""
    from foretype_models.corpus import build, sources
    from foretype_models.corpus.never import NeverTrain

    folder = _MODELS / "corpus"
    manifest = build.build(
        sources.Plan.load(folder / "sources.toml"),
        NeverTrain.load(folder / "never_train.toml"),
        work / "wheels",
        work / "never",
        benchmarks,
        work / "corpus",
    )
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    _say(json.dumps(manifest["totals"], indent=1))


def tokenizer(work: Path) -> None:
    """Trains the tokenizer on a sample of the training split."""
    from foretype_models import tokenizer as making
    from foretype_models.corpus.build import read_shards

    manifest = json.loads((_MODELS / "corpus" / "manifest.json").read_text())
    total = manifest["totals"]["splits"]["train"]["bytes"]
    texts = making.sample(read_shards(work / "corpus", "train"), total, TOKENIZER_SAMPLE_BYTES)
    FOLDER.mkdir(exist_ok=True)
    making.train(texts).save(str(FOLDER / "tokenizer.json"))
    _say(f"wrote {FOLDER / 'tokenizer.json'}")


def store(work: Path) -> None:
    """Builds the text stores that training samples from."""
    from foretype_models import data
    from foretype_models.corpus.build import read_shards

    for split in ("train", "validation"):
        data.build_store(read_shards(work / "corpus", split), work / "store" / split)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Prepare what training reads.")
    parser.add_argument("step", choices=["download", "corpus", "tokenizer", "store", "all"])
    parser.add_argument("--work", type=Path, required=True, help="folder for wheels, shards and stores (some 2 GB)")
    parser.add_argument("--benchmarks", type=Path, help="folder with HumanEval-Infilling files, for the content check")
    options = parser.parse_args()
    steps = {
        "download": lambda: download(options.work),
        "corpus": lambda: corpus(options.work, options.benchmarks),
        "tokenizer": lambda: tokenizer(options.work),
        "store": lambda: store(options.work),
    }
    for name, step in steps.items():
        if options.step in (name, "all"):
            step()


if __name__ == "__main__":
    main()
