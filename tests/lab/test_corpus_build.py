import gzip
import json
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
from foretype_lab.corpus import build, download, prepare, shards, sources, verify
from foretype_lab.corpus.languages import LANGUAGES
from foretype_lab.corpus.licences import permissive_expression
from foretype_lab.corpus.never_train import NeverTrain
from foretype_lab.corpus.store import Store

CORPUS = Path(__file__).parents[2] / "lab" / "corpus"
NEVER = NeverTrain.load(CORPUS / "never_train.toml")


def code(name: str, count: int = 8) -> str:
    return f'"""Module {name}."""\n' + "\n".join(
        f"def {name}_{n}(value, limit):\n    {name} = value * limit\n    return {name}\n" for n in range(count)
    )


def wheel(folder: Path, name: str, files: dict[str, str], licence: str = "License-Expression: MIT") -> None:
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        metadata = f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n{licence}\n"
        archive.writestr(f"{name}-1.0.dist-info/METADATA", metadata)
        for path, text in files.items():
            archive.writestr(path, text)


def build_of(folder: Path, *projects: str, held: str = "", most: int = 1_000_000, bench: Path | None = None) -> Any:
    plan = sources.Plan(projects, frozenset(held.split()), most, False, frozenset())
    return build.build(plan, NEVER, folder / "wheels", folder / "never", bench, folder / "out")


@pytest.fixture
def built(tmp_path: Path) -> tuple[dict[str, Any], Path]:
    wheels, never = tmp_path / "wheels", tmp_path / "never"
    secret = code("secret", 20)
    wheel(never, "click", {"click/core.py": secret})
    shared = code("shared")
    good = {
        "good/a.py": code("alpha"),
        "good/copy.py": "import os\n\n" + secret,
        "good/_vendor/requests/api.py": code("api"),
        "good/x_pb2.py": code("proto"),
        "good/shared.py": shared,
        "good/readme.txt": "text",
    }
    wheel(wheels, "good", good)
    wheel(wheels, "held", {"held/b.py": code("beta"), "held/shared.py": shared})
    wheel(wheels, "copyleft", {"copyleft/c.py": code("gamma")}, "License-Expression: GPL-3.0-only")
    wheel(wheels, "silent", {"silent/d.py": code("delta")}, "Summary: nothing about a licence")
    wheel(wheels, "unlisted", {"unlisted/e.py": code("epsilon")})
    return build_of(tmp_path, "good", "held", "copyleft", "silent", held="held"), tmp_path / "out"


def lines(folder: Path, split: str) -> list[dict[str, str]]:
    return list(shards.read_shards(folder, split))


def test_only_what_may_be_trained_on_arrives(built: tuple[dict[str, Any], Path]) -> None:
    _, out = built
    assert {line["path"] for line in lines(out, "validation")} == {"held/b.py", "held/shared.py"}
    alpha = {"repo": "good", "path": "good/a.py", "language": "python", "text": code("alpha")}
    assert lines(out, "train") == [alpha]


def test_a_file_in_both_splits_stays_with_validation_alone(built: tuple[dict[str, Any], Path]) -> None:
    manifest, _ = built
    good = next(item for item in manifest["sources"] if item["name"] == "good")
    assert good["dropped"] == {"generated": 1, "near_duplicate": 1, "never_train_run": 1, "vendored": 1}


def test_the_manifest_accounts_for_every_project_and_names_what_matched(built: tuple[dict[str, Any], Path]) -> None:
    manifest, _ = built
    assert [item["name"] for item in manifest["sources"]] == ["good", "held"]
    assert [item["name"] for item in manifest["refused"]] == ["copyleft", "silent"]
    assert manifest["never_train"]["matched_files"] == ["good:good/copy.py"]
    assert manifest["never_train"]["benchmarks_checked"] == []
    good = manifest["sources"][0]
    assert (good["licence"], good["files"], good["bytes"]) == ("MIT", 1, len(code("alpha")))
    assert len(good["sha256"]) == 64
    assert manifest["totals"]["splits"]["train"] == {"projects": 1, "files": 1, "bytes": len(code("alpha"))}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("finished", [0, 1, 3])
def test_a_stopped_build_goes_on_and_gives_the_same_bytes(tmp_path: Path, finished: int) -> None:
    names = [f"project{n}" for n in range(4)]
    for n, name in enumerate(names):
        # Every project has a copy of a file of the one before: what was kept is known again after a stop.
        wheel(tmp_path / "wheels", name, {f"{name}/a.py": code(f"own{n}"), f"{name}/b.py": code(f"own{n - 1}")})
    manifest = build_of(tmp_path, *names, held="project2")
    whole = contents(tmp_path / "out")
    journal = tmp_path / "out" / "journal.jsonl"
    lines_written = journal.read_text().splitlines(keepends=True)
    # Killed while the line after these was written: its shard and signatures are on disk already.
    journal.write_text("".join(lines_written[: 1 + finished]) + lines_written[1 + finished][:40])
    (tmp_path / "out" / "train-007.jsonl.gz").write_bytes(b"of a later shard")
    assert build_of(tmp_path, *names, held="project2") == manifest
    assert contents(tmp_path / "out") == whole


def test_shards_of_other_sources_are_not_gone_on_with(tmp_path: Path) -> None:
    for name in ("alpha", "omega"):
        wheel(tmp_path / "wheels", "good", {"good/a.py": code(name)})
        build_of(tmp_path, "good")
    assert [line["text"] for line in lines(tmp_path / "out", "train")] == [code("omega")]


def test_a_new_shard_begins_where_one_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "SHARD_BYTES", 1000)
    for n in range(3):
        wheel(tmp_path / "wheels", f"p{n}", {f"p{n}/a.py": code(f"own{n}", 30)})
    build_of(tmp_path, "p0", "p1", "p2")
    assert len(list((tmp_path / "out").glob("train-*.jsonl.gz"))) == 3
    assert [line["repo"] for line in lines(tmp_path / "out", "train")] == ["p0", "p1", "p2"]


def test_a_listed_never_train_project_stops_the_build(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Flask"):
        build_of(tmp_path, "good", "Flask==3.0")


def test_a_never_train_wheel_that_lies_about_is_not_read(tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", "tqdm", {"tqdm/std.py": code("std")})
    assert build_of(tmp_path, "good")["sources"] == []


def test_benchmark_tasks_are_part_of_the_check(tmp_path: Path) -> None:
    body = code("solution", 12)
    task = {"task_id": "T/0", "prompt": body[:200], "canonical_solution": body[200:300], "suffix": body[300:]}
    (tmp_path / "bench").mkdir()
    with gzip.open(tmp_path / "bench" / "HumanEval.jsonl.gz", "wt") as stream:
        stream.write(json.dumps(task) + "\n")
    wheel(tmp_path / "wheels", "good", {"good/t.py": "import re\n\n\n" + body, "good/a.py": code("alpha")})
    manifest = build_of(tmp_path, "good", bench=tmp_path / "bench")
    assert manifest["never_train"]["matched_files"] == ["good:good/t.py"]
    assert [line["path"] for line in lines(tmp_path / "out", "train")] == ["good/a.py"]


def test_one_project_gives_at_most_its_share(tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", "good", {f"good/m{n}.py": code(f"name{n}") for n in range(10)})
    manifest = build_of(tmp_path, "good", most=3 * len(code("name0")) + 10)
    assert manifest["sources"][0]["files"] == 3
    assert manifest["totals"]["dropped"]["project_limit"] == 7


def test_a_wheel_is_read_without_unpacking_or_following_its_paths(tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", "evil", {"../../escaped.py": code("escaped"), "setup.py": "raise SystemExit('ran')\n"})
    (source,) = sources.open_wheels(tmp_path / "wheels")
    assert {path for path, _ in sources.files(source, frozenset())} == {"../../escaped.py", "setup.py"}
    assert {path.name for path in tmp_path.rglob("*")} == {"wheels", "evil-1.0-py3-none-any.whl"}


def promises(name: str, plan: sources.Plan) -> dict[str, Any]:
    manifest = json.loads((CORPUS / name).read_text())
    names = {item["name"] for item in manifest["sources"]}
    assert not [name for name in names if NEVER.refuses_project(name)]
    held_out = {item["name"] for item in manifest["sources"] if item["split"] == "validation"}
    assert held_out <= plan.validation
    assert all(permissive_expression(item["licence"]) for item in manifest["sources"])
    assert "HumanEval" in manifest["never_train"]["benchmarks_checked"]
    splits = manifest["totals"]["splits"]
    assert sum(part["bytes"] for part in splits.values()) == sum(item["bytes"] for item in manifest["sources"])
    return manifest


def test_the_committed_manifest_keeps_its_promises_in_every_language() -> None:
    plan = sources.Plan.load(CORPUS / "sources.toml")
    totals = promises("manifest.json", plan)["totals"]
    assert totals["splits"]["train"]["bytes"] >= 400_000_000
    assert totals["splits"]["validation"]["projects"] >= 20
    assert set(totals["languages"]) == set(LANGUAGES)
    assert all(of["validation_projects"] for of in totals["languages"].values())
    everything = sum(of["bytes"] for of in totals["languages"].values())
    assert totals["languages"]["python"]["bytes"] >= 0.6 * everything
    assert {"near_duplicate", "generated", "minified", "secret", "never_train_run"} <= set(totals["dropped"])


def test_a_corpus_with_something_that_must_not_be_trained_on_does_not_verify(
    built: tuple[dict[str, Any], Path],
) -> None:
    manifest, out = built
    secret = [("click:core.py", code("secret", 20), "python")]
    assert list(verify.faults(manifest, out, secret)) == []
    line = {"repo": "good", "path": "good/c.py", "language": "python", "text": "import os\n\n" + code("secret", 20)}
    with gzip.open(out / "train-001.jsonl.gz", "wt") as stream:
        stream.write(json.dumps(line) + "\n")
        stream.write(json.dumps({**line, "repo": "held", "path": "held/d.py", "text": code("delta", 20)}) + "\n")
    assert list(verify.faults(manifest, out, secret)) == [
        "good:good/c.py: never_train_run",
        "held:held/d.py: is in the shards of train and not in that part of the manifest",
        "good: 2 files in the shards, 1 in the manifest",
        "held: 1 files in the shards, 0 in the manifest",
    ]


def test_downloads_never_build_and_failures_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel(tmp_path, "present", {"present/a.py": code("alpha")})
    commands: list[list[str]] = []

    def pip(command: list[str], **_options: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        failed = command[-1] == "gone"
        return subprocess.CompletedProcess(command, int(failed), "", "noise\nERROR: no wheel\n" if failed else "")

    monkeypatch.setattr(download.subprocess, "run", pip)
    assert download.wheels(("Present==1.0", "gone", "new==2.0"), tmp_path) == ["gone: ERROR: no wheel"]
    assert sorted(command[-1] for command in commands) == ["gone", "new==2.0"], "what is there is not fetched again"
    assert all({"--no-deps", "--only-binary=:all:"} <= set(command) for command in commands)


def test_one_name_in_two_registries_is_pinned_in_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheel `fabric` was asked for at the npm package's version, which no index has."""
    plan = tmp_path / "plan.toml"
    plan.write_text(
        "[limits]\nproject_bytes = 1\n[standard_library]\nuse = false\nskip = []\n"
        '[pypi]\nvalidation = []\nprojects = ["fabric"]\n[npm]\npackages = ["fabric", "@cesium/engine"]\n'
    )
    pinned = [("wheel", "fabric", "3.2.3"), ("npm", "fabric", "7.4.0"), ("npm", "cesium-engine", "1.0.0")]
    sources_ = [{"kind": kind, "name": name, "version": version} for kind, name, version in pinned]
    prepare.manifest_of(plan).write_text(json.dumps({"sources": sources_}))
    asked: dict[str, tuple[str, ...]] = {}

    def wheels(projects: tuple[str, ...], folder: Path) -> list[str]:
        asked[folder.name] = projects
        return []

    for way in ("wheels", "sdists", "npm"):
        monkeypatch.setattr(download, way, wheels)
    prepare.download(tmp_path, plan)
    assert (asked["wheels"], asked["npm"]) == (("fabric==3.2.3",), ("fabric@7.4.0", "@cesium/engine@1.0.0"))


def test_the_steps_of_preparing_go_on_with_what_the_one_before_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work, plan = tmp_path / "work", tmp_path / "sources.toml"
    for folder in ("wheels", "never"):
        (work / folder).mkdir(parents=True)
    wheel(work / "wheels", "good", {"good/a.py": code("alpha")})
    wheel(work / "wheels", "held", {"held/b.py": code("beta")})
    wheel(work / "never", "click", {"click/core.py": code("secret", 20)})
    plan.write_text(
        "[limits]\nproject_bytes = 1000000\n[standard_library]\nuse = false\nskip = []\n"
        '[pypi]\nprojects = ["good", "held"]\nvalidation = ["held"]\n'
    )
    prepare.corpus(work, None, plan)
    prepare.verify(work, None, plan)
    prepare.store(work)
    assert "1 training files: nothing that must not be trained on" in capsys.readouterr().out
    assert [one["name"] for one in json.loads((tmp_path / "manifest.json").read_text())["sources"]] == ["good", "held"]
    assert Store(work / "store" / "train").text(0) == code("alpha")
    assert Store(work / "store" / "validation").text(0) == code("beta")
