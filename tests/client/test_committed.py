"""The repository part comes from the commit that is checked out, never from the working tree."""

from pathlib import Path

import pytest
from foretype_client.sources.committed import CommittedSource, GitHead, repository_of
from foretype_context.prompt.segments import Scope
from foretype_context.prompt.sources import Snippet
from foretype_context.syntax.document import Document
from git_repo import git

VIEW = "from pydantic import BaseModel\nimport json\n\n\ndef {0}(limit: int) -> list[str]:\n    return []\n"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "shop"
    (root / "web" / "inner").mkdir(parents=True)
    (root / "requirements.txt").write_text("fastapi\npydantic\n")
    (root / "web" / "orders é.py").write_text(VIEW.format("orders"))
    (root / "web" / "users.py").write_text(VIEW.format("users"))
    (root / "web" / "large.py").write_text("x = 1\n" * 20_000)
    (root / "web" / "link.py").symlink_to("users.py")
    (root / "web" / "inner" / "deep.py").write_text("def deep(): ...\n")
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "x")
    return root


def ask(source: CommittedSource, path: Path) -> list[Snippet]:
    # An editor's paths may be relative to another folder than the repository.
    return list(source.snippets(Document(path.as_uri(), "x = 1\n", path=path.name).snapshot(), 0, limit=4))


def test_it_is_of_the_files_package_at_the_commit(root: Path) -> None:
    clock = Clock()
    source = CommittedSource(globs=(), clock=clock)
    (part,) = ask(source, root / "web" / "new.py")
    assert (part.path, part.scope, part.source_name) == ("web/", Scope.REPOSITORY, "repository")
    assert part.text.startswith("# python with FastAPI, pydantic\nfrom pydantic import BaseModel\nimport json\n")
    assert "def orders(limit: int)" in part.text and "def users(" in part.text and "deep" not in part.text
    (root / "web" / "users.py").write_text(VIEW.format("unsaved"))
    clock.now = 100.0
    assert ask(source, root / "web" / "new.py") == [part]
    git(root, "commit", "-qam", "y")
    assert ask(source, root / "web" / "new.py") == [part]
    clock.now = 200.0
    (newer,) = ask(source, root / "web" / "new.py")
    assert "def unsaved(" in newer.text and "def users(" not in newer.text


def test_a_folder_whose_name_is_a_pattern_too_is_that_folder(root: Path) -> None:
    """Web frameworks have such names; git reads them by the letter here, and as patterns elsewhere."""
    for folder in ("[id]", "i"):
        (root / folder).mkdir()
        (root / folder / "view.py").write_text(VIEW.format(f"of_{len(folder)}"))
    git(root, "add", "-A")
    git(root, "commit", "-qm", "y")
    (part,) = ask(CommittedSource(globs=(), clock=Clock()), root / "[id]" / "new.py")
    assert part.path == "[id]/" and "def of_4(" in part.text and "def of_1(" not in part.text


def test_globs_leave_files_out_and_files_are_bounded(root: Path) -> None:
    head = GitHead(root, globs=("users.py",), clock=Clock())
    assert set(head.files("web")) == {"requirements.txt", "web/orders é.py"}
    assert set(head.files("")) == {"requirements.txt"}


def test_another_commit_than_the_one_checked_out_can_be_read(root: Path) -> None:
    (root / "web" / "users.py").write_text(VIEW.format("renamed"))
    git(root, "commit", "-qam", "y")
    before = GitHead(root, globs=(), clock=Clock(), revision="HEAD~1")
    assert "def users(" in before.files("web")["web/users.py"]
    assert "def renamed(" in GitHead(root, globs=(), clock=Clock()).files("web")["web/users.py"]
    assert GitHead(root, globs=(), clock=Clock(), revision="HEAD~9").commit() == ""


def test_where_there_is_no_commit_there_is_no_part(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = CommittedSource(globs=(), clock=Clock())
    (tmp_path / "plain").mkdir()
    assert ask(source, tmp_path / "plain" / "a.py") == []
    git(tmp_path / "plain", "init", "-q")
    assert ask(source, tmp_path / "plain" / "a.py") == []
    assert source.snippets(Document("untitled:a.py", "").snapshot(), 0, limit=4) == ()
    monkeypatch.setenv("PATH", "")
    assert ask(CommittedSource(globs=(), clock=Clock()), root / "web" / "users.py") == []


def test_the_innermost_repository_counts(root: Path) -> None:
    git(root / "web" / "inner", "init", "-q")
    assert repository_of(root / "web" / "inner" / "deep.py") == root / "web" / "inner"
    assert repository_of(root / "web" / "users.py") == root


def test_what_is_ignored_since_the_part_was_made_is_not_in_it(root: Path) -> None:
    source = CommittedSource(globs=(), clock=Clock())
    assert "def users(" in ask(source, root / "web" / "new.py")[0].text
    (root / ".gitignore").write_text("users.py\n")
    (part,) = ask(source, root / "web" / "new.py")
    assert "def users(" not in part.text and "def orders(" in part.text
    (root / ".gitignore").unlink()
    assert "def users(" in ask(source, root / "web" / "new.py")[0].text
