"""A folder that the user does not trust: the real language server opens nothing in it, as the system itself tells."""

import shutil
import sys

import pytest
from e2e.lsp_support import SOURCE, editor
from e2e.opened import Opened
from git_repo import git
from waiting import until

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("git") is None, reason="needs Linux's inotify, and git"
)


@pytest.fixture
def project(tmp_path):
    """A repository with everything in it that a trusted one is asked for."""
    root = tmp_path / "project"
    for folder in ("shop", ".vscode", ".venv/lib/python3.11/site-packages/other"):
        (root / folder).mkdir(parents=True)
    (root / "shop/__init__.py").write_text("")
    (root / "shop/cart.py").write_text("class Basket:\n    total = 1\n")
    (root / "pay.py").write_text("from shop.cart import Basket\n" + SOURCE)
    (root / ".gitignore").write_text("*.log\n")
    (root / ".vscode/settings.json").write_text('{"foretype.multiLine": false}')
    for words in (("init", "-q"), ("add", "-A", "-f"), ("commit", "-qm", "one")):
        git(root, *words)
    return root


async def worked_in(it, uri):
    """All that an editor tells and asks about a document."""
    it.open("from shop.cart import Basket\n" + SOURCE, uri=uri)
    it.insert(4, 0, "value = ", uri=uri)
    item = await until(lambda: it.suggestion(4, 8, uri=uri))  # it may be connecting anew
    assert "scripted" in item.insert_text
    it.saved(uri)
    it.file_changed(uri)
    await it.execute("foretype.explain")
    await it.taken(item)
    return await it.status()


async def test_an_untrusted_folder_is_not_opened_and_a_trusted_one_is(served, project, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    cache = {"index": {"cacheDir": str(tmp_path / "cache")}}
    options = {"debounceMs": 0, "trusted": False, **cache}
    uri = (project / "pay.py").as_uri()
    state = ("--state-dir", tmp_path / "state")
    with Opened(project) as opened:
        async with editor(
            tmp_path, "--gateway", served.url, *state, options=options, folders=[project], ready=False
        ) as it:
            await it.until("ready")
            told = await worked_in(it, uri)
            assert "not trusted" in told["index"]
            it.configure(debounceMs=0, multiLine=False, **cache)  # whoever forgets to say it does not give it
            it.configure(debounceMs=0, trusted="yes", **cache)
            assert "not trusted" in (await it.status())["index"]
            await worked_in(it, uri)
            assert opened.so_far() == set()

            it.configure(debounceMs=0, trusted=True, **cache)
            await it.until_index(lambda said: "not trusted" not in said)
            seen = set()

            def read():
                seen.update(opened.so_far())
                return {project / "shop/cart.py", project / ".gitignore", project / ".git/HEAD"} <= seen

            await until(read)

            it.configure(debounceMs=0, trusted=False, **cache)
            await it.until_index(lambda said: "not trusted" in said)
            await worked_in(it, uri)  # the former client has ended before this one answers
            opened.so_far()
            await worked_in(it, uri)
            assert opened.so_far() == set()
