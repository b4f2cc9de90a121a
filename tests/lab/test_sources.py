import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from foretype_lab.corpus import build, download, readers, shards, sources, terms
from foretype_lab.corpus.filters import rejection
from foretype_lab.corpus.languages import language_of
from foretype_lab.corpus.never_train import NeverTrain
from foretype_lab.errors import LabError
from git_repo import git

ROOT = Path(__file__).parents[2]
NEVER = NeverTrain.load(ROOT / "lab" / "corpus" / "never_train.toml")
MIT = "MIT License\n\nPermission is hereby granted, free of charge, to any person obtaining a copy of this software"
GPL = "GNU GENERAL PUBLIC LICENSE\nVersion 3, 29 June 2007\n"


def go(name: str, count: int = 12) -> str:
    functions = "\n".join(
        f"// {name}{n} scales.\nfunc {name}{n}(value int, limit int) int {{\n\t{name} := value * limit\n\treturn {name}\n}}\n"
        for n in range(count)
    )
    return f"package {name}\n\n{functions}"


def tarball(path: Path, files: dict[str, str], mode: str = "w:gz") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))


def repository(folder: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
        git(folder, *command)
    return git(folder, "rev-parse", "HEAD")


def debian(folder: Path, copyright: str, files: dict[str, str]) -> Path:
    tarball(folder / "tool_1.0.orig.tar.xz", {f"tool-1.0/{name}": text for name, text in files.items()}, "w:xz")
    tarball(folder / "tool_1.0-1.debian.tar.xz", {"debian/copyright": copyright, "debian/x.go": go("x")}, "w:xz")
    lines = "".join(
        f" {hashlib.sha256(path.read_bytes()).hexdigest()} {path.stat().st_size} {path.name}\n"
        for path in sorted(folder.glob("*.tar.xz"))
    )
    description = folder / "tool_1.0-1.dsc"
    signed = "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\nSource: tool\n"
    description.write_text(f"{signed}Checksums-Sha256:\n{lines}")
    return description


DEP5 = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
Copyright: 2020 A
License: Expat

Files: contrib/*
Copyright: 2020 B
License: GPL-2+

License: Expat
 Permission is hereby granted
"""


def test_a_debian_source_is_read_by_the_terms_of_each_file(tmp_path: Path) -> None:
    debian(tmp_path, DEP5, {"core/a.go": go("alpha"), "contrib/b.go": go("beta")})
    (source,) = sources.open_debian(tmp_path)
    found = sources.terms_of(source)
    assert (source.name, source.version, found.licence) == ("tool", "1.0-1", "MIT")
    paths = [path for path, _ in sources.files(source, frozenset())]
    assert paths == ["core/a.go", "contrib/b.go"], "packaging is not upstream's source"
    assert [found.allows(path) for path in paths] == [True, False]


def test_a_debian_part_with_other_content_is_refused(tmp_path: Path) -> None:
    description = debian(tmp_path, DEP5, {"a.go": go("alpha")})
    part = tmp_path / "tool_1.0.orig.tar.xz"
    part.write_bytes(part.read_bytes()[:-8])
    with pytest.raises(LabError, match="download it again"):
        readers.debian_parts(description)
    part.unlink()
    with pytest.raises(LabError, match=r"tool_1\.0\.orig\.tar\.xz is missing"):
        readers.debian_parts(description)


def test_a_commit_is_read_without_its_work_tree(tmp_path: Path) -> None:
    clone = tmp_path / "owner" / "tool"
    mixed = {"web/x.ts": "let x = 1\n", "gpl/COPYING": GPL, "gpl/b.go": go("beta")}
    commit = repository(clone, {"LICENSE": MIT, "a.go": go("alpha"), **mixed})
    (clone / "a.go").write_text("package changed\n")
    item = sources.Commit("https://example.org/owner/tool.git", commit, frozenset({"go"}))
    (source,) = sources.open_commits((item,), tmp_path)
    assert dict(sources.files(source, frozenset())) == {"a.go": go("alpha").encode(), "gpl/b.go": go("beta").encode()}
    found = sources.terms_of(source)
    assert (found.licence, found.allows("a.go"), found.allows("gpl/b.go")) == ("MIT", True, False)
    with pytest.raises(LabError, match="git clone"):
        list(readers.git_files(clone, "0" * 40, lambda _: True))
    with pytest.raises(LabError, match="owner/gone is missing"):
        list(sources.open_commits((sources.Commit("https://example.org/owner/gone", commit),), tmp_path))


def test_a_commit_is_fetched_from_its_url(tmp_path: Path) -> None:
    commit = repository(tmp_path / "up" / "owner" / "tool", {"a.go": go("alpha")})
    item = sources.Commit((tmp_path / "up" / "owner" / "tool").as_uri(), commit)
    gone = sources.Commit((tmp_path / "up" / "owner" / "gone").as_uri(), commit)
    failures = download.commits((item, gone), tmp_path / "down")
    assert len(failures) == 1 and failures[0].startswith(gone.url)
    (source,) = sources.open_commits((item,), tmp_path / "down")
    assert [path for path, _ in sources.files(source, frozenset())] == ["a.go"]


def test_sdists_and_npm_tarballs_are_read_with_their_metadata(tmp_path: Path) -> None:
    tarball(
        tmp_path / "s" / "tool-1.0.tar.gz",
        {"tool-1.0/PKG-INFO": "Metadata-Version: 2.4\nName: Tool\nVersion: 1.0\nLicense: MIT\n", "tool-1.0/t.py": "x"},
    )
    tarball(
        tmp_path / "n" / "scope-tool-1.0.0.tgz",
        {"package/package.json": json.dumps({"license": "ISC"}), "package/src/a.js": "x", "package/dist/a.js": "y"},
    )
    (sdist,) = sources.open_sdists(tmp_path / "s")
    (package,) = sources.open_npm(tmp_path / "n")
    assert (sdist.name, sdist.version, sources.terms_of(sdist).licence) == ("tool", "1.0", "MIT")
    assert list(sources.files(sdist, frozenset())) == [("t.py", b"x")]
    assert (package.name, package.version, sources.terms_of(package).passes) == ("scope-tool", "1.0.0", True)
    assert list(sources.files(package, frozenset({"dist"}))) == [("src/a.js", b"x")]


def test_a_broken_tarball_names_itself(tmp_path: Path) -> None:
    (tmp_path / "tool-1.0.tar.gz").write_bytes(b"\x1f\x8b\x08\x00broken")
    with pytest.raises(LabError, match=r"tool-1\.0\.tar\.gz cannot be read"):
        list(sources.open_sdists(tmp_path))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (MIT, "MIT"),
        ("Apache License\n Version 2.0, January 2004\n", "Apache-2.0"),
        ("Redistribution and use in source and\nbinary forms, with … Neither the name of", "BSD-3-Clause"),
        ("Redistribution and use in source and binary forms, with or without modification", "BSD-2-Clause"),
        (GPL, None),
        ("This software is under MIT, ask Bob.", None),
        (GPL + MIT, None),
        ("Portions are under the Enterprise License.\n" + MIT, None),
    ],
)
def test_a_licence_is_known_by_its_text(text: str, name: str | None) -> None:
    assert terms.identify(text) == name


def test_a_choice_of_licence_texts_passes_when_one_does() -> None:
    found = terms.of_licence_texts(
        {"LICENSE-MIT": MIT, "COPYING": GPL, "ee/LICENSE": "Enterprise License", "a[1]/LICENSE": GPL}
    )
    assert found.licence == "MIT"
    assert [found.allows(path) for path in ("a.go", "ee/b.go", "x/ee/b.go", "a[1]/c.go")] == [True, False, True, False]
    assert not terms.of_licence_texts({"sub/LICENSE": MIT}).passes
    assert not terms.of_licence_texts({}).passes


@pytest.mark.parametrize("text", ["", "Files: *\nLicense: Expat\n", "© somebody, GPL"])
def test_a_debian_copyright_of_the_free_form_passes_nothing(text: str) -> None:
    assert not terms.of_debian(text).passes


@pytest.mark.parametrize("text", ["", "[]", '{"license": {"type": "MIT"}}', '{"license": "SEE LICENSE IN x"}', "{"])
def test_a_package_json_without_a_permissive_licence_passes_nothing(text: str) -> None:
    assert not terms.of_package_json(text).passes


def test_a_file_under_other_terms_is_seen_by_its_header() -> None:
    assert terms.refused_header("/* under the GNU Lesser General Public License */")
    assert terms.refused_header("// SPDX-License-Identifier: MPL-2.0\nfn main() {}")
    assert not terms.refused_header("// SPDX-License-Identifier: Apache-2.0 OR MIT\nfn main() {}")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("api/types.pb.go", "generated"),
        ("zz_generated.deepcopy.go", "generated"),
        ("lib/index.d.ts", "generated"),
        ("lib/app.min.js", "generated"),
        ("src/app.ts", None),
        ("src/main.rs", None),
        ("src/Main.java", None),
    ],
)
def test_generated_names_of_other_languages(path: str, reason: str | None) -> None:
    assert rejection(path, go("alpha")) == reason


def test_languages_are_known_by_suffix() -> None:
    names = ("a.py", "a.mjs", "a.tsx", "a.go", "a.rs", "A.java", "a.h", "a.CPP", "a.md", "a")
    expected = ["python", "javascript", "typescript", "go", "rust", "java", "c", "cpp", None, None]
    assert [language_of(name) for name in names] == expected


def plan(commits: tuple[sources.Commit, ...], **fields: Any) -> sources.Plan:
    return sources.Plan((), frozenset({"owner/held"}), 1_000_000, False, frozenset(), commits=commits, **fields)


def test_other_languages_pass_the_same_checks(tmp_path: Path) -> None:
    secret = go("secret", 30)
    kept = {"LICENSE": MIT, "a.go": go("alpha"), "copy.go": "// new\n" + secret, "vendor/v.go": go("vendored")}
    names = {"owner/tool": kept, "owner/held": {"LICENSE": MIT, "h.go": go("held"), "a.go": go("alpha")}}
    commits = tuple(
        sources.Commit(f"https://example.org/{name}", repository(tmp_path / name, files))
        for name, files in names.items()
    )
    cobra = sources.Commit("https://example.org/spf13/cobra", repository(tmp_path / "spf13/cobra", {"c.go": secret}))
    for folder in ("wheels", "never"):
        (tmp_path / folder).mkdir()
    folders = (tmp_path / "wheels", tmp_path / "never", None, tmp_path / "out")
    others, never = (list(sources.open_commits(several, tmp_path)) for several in (commits, (cobra,)))
    manifest = build.build(plan(commits), NEVER, *folders, others=others, never_others=never)
    assert list(shards.read_shards(tmp_path / "out", "train")) == []
    held = list(shards.read_shards(tmp_path / "out", "validation"))
    assert {line["path"] for line in held} == {"a.go", "h.go"}
    (tool,) = [item for item in manifest["sources"] if item["name"] == "owner/tool"]
    assert tool["dropped"] == {"near_duplicate": 1, "never_train_run": 1, "vendored": 1}
    assert manifest["totals"]["languages"]["go"]["validation_projects"] == 1
    assert manifest["never_train"]["repositories_checked"] == [f"{cobra.url}@{cobra.commit}"]


def test_a_never_train_repository_stops_the_build(tmp_path: Path) -> None:
    commits = (sources.Commit("https://example.org/spf13/cobra", "0" * 40),)
    with pytest.raises(ValueError, match="never-train list"):
        build.build(plan(commits), NEVER, tmp_path, tmp_path, None, tmp_path / "out")


def test_a_giant_gives_whole_folders_from_everywhere(tmp_path: Path) -> None:
    files = {f"{folder}/{number}.go": go(f"n{folder}{number}") for folder in "abcdef" for number in range(3)}
    commit = repository(tmp_path / "owner" / "tool", {"LICENSE": MIT, **files})
    (source,) = sources.open_commits((sources.Commit("https://example.org/owner/tool", commit),), tmp_path)
    size = len(files["a/0.go"].encode())
    job = build.Job(source, sources.terms_of(source), NEVER, frozenset(), 6 * size + 10)
    kept = [document.path for document in build._read(job)[0]]
    assert kept == sorted(kept) and len(kept) == 6
    assert len({path[0] for path in kept}) == 2, "two folders, whole"
    assert {path[0] for path in kept} != {"a", "b"}
