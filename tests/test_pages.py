"""The pages: what they and the code name is there, and the site asks no other host. `make docs` checks links and anchors inside of docs/."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from markdown.extensions.toc import slugify

ROOT = Path(__file__).parents[1]
OUTSIDE = ("README.md", "CONTRIBUTING.md", "lab/README.md", "models/README.md", "models/MODEL_CARD.md")
"""Pages that the site does not have: mkdocs does not look at their links."""
ROOMS = "client|context|lsp_server|backend|retrieval|models|eval|plan|wire|lab|tests|deploy|editors|docs|requirements"
LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]+))?\)")
PATH = re.compile(rf"`((?:{ROOMS})/[\w./-]+)`")
MADE_UP = "NAME"
"""Stands for a name in a path."""
PAGE_IN_CODE = re.compile(r"(?<![\w/.-])docs/[\w/-]+\.(?:md|json|png|svg|py)\b")


def pages() -> list[str]:
    return [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")] + list(OUTSIDE)


def anchors(page: Path) -> set[str]:
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    return {slugify(title, "-") for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_link_leads_to_a_file_and_to_a_heading_of_it(name: str) -> None:
    for target, anchor in LINK.findall((ROOT / name).read_text("utf-8")):
        page = ROOT / name if not target else (ROOT / name).parent / target
        assert page.exists(), target
        assert not anchor or anchor in anchors(page), f"{target}#{anchor}"


@pytest.mark.parametrize("name", pages())
def test_a_path_that_a_page_names_is_there(name: str) -> None:
    for path in PATH.findall((ROOT / name).read_text("utf-8")):
        assert MADE_UP in path or (ROOT / path).exists(), path


def test_a_page_that_the_code_names_is_there() -> None:
    kinds = [f"*.{kind}" for kind in ("py", "toml", "lua", "ts", "el", "yaml", "yml", "sh", "json")]
    listed = subprocess.run(
        ["git", "ls-files", *kinds], cwd=ROOT, check=True, capture_output=True, text=True, timeout=60
    )
    names = [name for name in listed.stdout.splitlines() if not name.startswith(("tests/", "models/"))]
    assert len(names) > 400
    for name in names:
        for page in PAGE_IN_CODE.findall((ROOT / name).read_text("utf-8")):
            assert (ROOT / page).exists(), f"{name}: {page}"


@pytest.mark.slow
def test_the_site_asks_no_other_host(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=100)
    built = list(tmp_path.rglob("*.html"))
    assert len(built) > len(pages()) - len(OUTSIDE)
    asks = re.compile(r'<(?:script|link|img|iframe|source)\b[^>]*(?:src|href)="?(?:https?:)?//[^>]*')
    for page in built:
        found = [one for one in asks.findall(page.read_text("utf-8")) if 'rel="canonical"' not in one]
        assert not found, f"{page.name}: {found}"
