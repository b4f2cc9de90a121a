"""Imports, recent edits and open documents: signatures without any index."""

import os
from pathlib import Path

import pytest
from client.test_committed import Clock
from foretype_client.sources.naming import Import, imports_of
from foretype_client.sources.own import OwnSource
from foretype_context.prompt.sources import Snippet
from foretype_context.syntax.document import Document
from hypothesis import given
from hypothesis import strategies as st

CART = (
    'class Basket:\n    """Things to buy."""\n\n    def total(self) -> int:\n        return 1\n\n\ndef other(): ...\n'
)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for path, text in {"shop/__init__.py": "from .cart import Basket\n", "shop/cart.py": CART, "pay.py": ""}.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


@pytest.fixture
def source(root: Path, clock: Clock) -> OwnSource:
    return OwnSource([root], dependencies=False, clock=clock)


def ask(source: OwnSource, root: Path, text: str, path: str = "pay.py", limit: int = 8) -> list[Snippet]:
    snapshot = Document((root / path).as_uri(), text, path=path).snapshot()
    return list(source.snippets(snapshot, len(text), limit=limit))


@pytest.mark.parametrize(
    "line",
    [
        "from shop.cart import Basket\n",
        "from shop import cart\n",
        "import shop.cart\n",
        "from .shop.cart import (\n    Basket,  # with, commas\n    other as another,\n)\n",
        "from shop import Basket\n",
    ],
)
def test_what_an_import_names_is_shown_by_its_signature(source: OwnSource, root: Path, line: str) -> None:
    (found,) = ask(source, root, line + "b = ")
    assert (found.path if "cart" in line else "shop/cart.py", found.source_name) == ("shop/cart.py", "imports")
    assert "def total(self) -> int" in found.text and "return 1" not in found.text


def test_only_what_is_imported_of_it(source: OwnSource, root: Path) -> None:
    assert "other" not in ask(source, root, "from shop.cart import Basket\nb = ")[0].text


def test_the_text_in_the_editor_counts_until_it_is_closed(source: OwnSource, root: Path) -> None:
    uri = (root / "shop/cart.py").as_uri()
    source.opened(uri, CART.replace("total", "never_saved"))
    assert "never_saved" in ask(source, root, "from shop.cart import Basket\n")[0].text
    source.closed(uri)
    assert "never_saved" not in ask(source, root, "from shop.cart import Basket\n")[0].text


def test_a_file_is_read_again_when_it_has_changed(source: OwnSource, root: Path) -> None:
    ask(source, root, "from shop.cart import Basket\n")
    (root / "shop/cart.py").write_text(CART.replace("total", "grand_total"))
    assert "grand_total" in ask(source, root, "from shop.cart import Basket\n")[0].text


def test_what_is_used_near_the_cursor_comes_first(source: OwnSource, root: Path) -> None:
    (root / "far.py").write_text("def far_away(): ...\n")
    text = "from far import far_away\nfrom shop.cart import Basket\n" + "#" * 4000 + "\nBasket()\n"
    assert [one.path for one in ask(source, root, text)] == ["shop/cart.py", "far.py"]


def test_nothing_outside_of_the_open_folders_is_read(root: Path, clock: Clock) -> None:
    inner = OwnSource([root / "shop"], dependencies=False, clock=clock)
    assert ask(inner, root, "from ..pay import x\nfrom ...etc import y\n", "shop/cart.py") == []
    inner.folders([])
    assert ask(inner, root, "from shop.cart import Basket\n") == []


@pytest.mark.parametrize("name", [".env", "node_modules/x/index.js"])
def test_secrets_and_installed_files_are_not_shown(source: OwnSource, root: Path, name: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text("export function secret() {}\n")
    assert ask(source, root, f"import {{ secret }} from './{name}'\n", "web.ts") == []


@pytest.mark.parametrize("said", ["./view", "./view.js", "@/view"])
def test_scripts_name_files(source: OwnSource, root: Path, said: str) -> None:
    (root / "view.ts").write_text("export function show(a: number): string { return '' }\n")
    (found,) = ask(source, root, f"import {{ show, type Gone }} from '{said}'\n", "web.ts")
    assert found.path == "view.ts" and "function show(a: number): string" in found.text


def test_installed_packages_are_shown_only_if_asked_for(root: Path, clock: Clock) -> None:
    packages = root / ".venv/lib/python3.11/site-packages/requests"
    packages.mkdir(parents=True)
    (packages / "__init__.py").write_text("from .api import get\n")
    (packages / "api.py").write_text("def get(url, **options):\n    return 1\n")
    typed = root / "node_modules/left-pad"
    typed.mkdir(parents=True)
    (typed / "package.json").write_text('{"types": "lib.d.ts"}')
    (typed / "lib.d.ts").write_text("export declare function leftPad(text: string): string;\n")
    python, script = "from requests import get\n", "import { leftPad } from 'left-pad'\n"
    without = OwnSource([root], dependencies=False, clock=clock)
    assert ask(without, root, python) == [] and ask(without, root, script, "a.ts") == []
    using = OwnSource([root], dependencies=True, clock=clock)
    (found,) = ask(using, root, python)
    assert found.source_name == "dependencies" and "def get(url, **options)" in found.text
    assert found.path.startswith("requests/")
    assert "leftPad" in ask(using, root, script, "a.ts")[0].text


def test_a_package_cannot_name_types_outside_of_itself(root: Path, clock: Clock) -> None:
    (root / "node_modules/bad").mkdir(parents=True)
    (root / "node_modules/bad/package.json").write_text('{"types": "../../outside.ts"}')
    (root / "outside.ts").write_text("export function outside() {}\n")
    using = OwnSource([root], dependencies=True, clock=clock)
    assert ask(using, root, "import { outside } from 'bad'\n", "a.ts") == []


def test_recent_edits_show_what_is_around_them_newest_first_until_they_are_old(
    source: OwnSource, root: Path, clock: Clock
) -> None:
    for at, name in enumerate(("a", "b")):
        uri, text = (root / f"{name}.py").as_uri(), f"def in_{name}(x):\n    return x\n"
        source.opened(uri, text)
        clock.now = 10.0 + at
        source.changed(uri, text.replace("return x", "return x + 1"))
    found = [one for one in ask(source, root, "y = ") if one.source_name == "recent"]
    assert [one.path for one in found] == ["b.py", "a.py"] and "def in_b(x)" in found[0].text
    assert found[0].score > found[1].score
    clock.now = 3600.0
    assert all(one.source_name == "open" for one in ask(source, root, "y = "))


def test_open_documents_of_the_same_language_and_no_others(source: OwnSource, root: Path) -> None:
    source.opened((root / "a.py").as_uri(), "def in_a(): ...\n")
    source.opened((root / "b.ts").as_uri(), "export function inB() {}\n")
    assert [(one.path, one.source_name) for one in ask(source, root, "y = ")] == [("a.py", "open")]
    assert ask(source, root, "y = ", limit=0) == []


def test_the_answer_is_the_same_while_a_word_is_typed(source: OwnSource, root: Path) -> None:
    source.opened((root / "a.py").as_uri(), "def in_a(): ...\n")
    text = "from shop.cart import Basket\n"
    assert ask(source, root, text + "Ba") == ask(source, root, text + "Baske")


@given(st.text(max_size=300), st.sampled_from(["python", "typescript", "go", ""]))
def test_imports_of_any_text(text: str, language: str) -> None:
    for one in imports_of(f"from a import ({text}\nimport {text}\nimport {{{text} from './a'", language):
        assert isinstance(one, Import) and len(one.names) <= 40


@given(st.text(max_size=60))
def test_any_module_name_is_survived(text: str) -> None:
    source = OwnSource([Path("/nowhere")], dependencies=True, clock=Clock())
    quoted = text.replace("'", "").replace("\n", "")
    for line, path in ((f"from {text} import x\n", "a.py"), (f"import {{x}} from '{quoted}'\n", "a.ts")):
        ask(source, Path("/nowhere"), line, path)


def test_ignored_files_are_never_shown_however_they_are_found(root: Path, clock: Clock) -> None:
    (root / ".gitignore").write_text("settings_local.py\n")
    (root / "settings_local.py").write_text("KEY = 'hidden'\n\n\ndef load(): ...\n")
    (root / "notes.py").write_text("def noted(): ...\n")
    source = OwnSource([root], dependencies=False, clock=clock, globs=["notes.py"])
    for name in ("settings_local.py", "notes.py"):
        uri = (root / name).as_uri()
        source.opened(uri, (root / name).read_text())
        source.changed(uri, (root / name).read_text() + "\n\ndef more(): ...\n")
    assert ask(source, root, "import settings_local\nimport notes\nsettings_local.load()\n") == []
    assert source.status() == "2 open, 2 edited; ignored: notes.py, settings_local.py"
    (root / ".gitignore").write_text("")
    source.saved((root / ".gitignore").as_uri())
    assert [one.path for one in ask(source, root, "import settings_local\n")] == ["settings_local.py"]


def test_open_secrets_are_not_shown_to_other_files(root: Path, source: OwnSource) -> None:
    uri = (root / ".env").as_uri()
    source.opened(uri, "API_KEY=abc\n")
    source.changed(uri, "API_KEY=abcd\n")
    assert ask(source, root, "x = 1\n", path="notes.txt") == []


@pytest.mark.parametrize("kind", ["file", "folder", "device", "pipe"])
def test_a_link_that_leads_out_of_the_folder_is_not_followed(
    root: Path, clock: Clock, tmp_path_factory: pytest.TempPathFactory, kind: str
) -> None:
    home = tmp_path_factory.mktemp("home")
    (home / "private.py").write_text("def secret_of_mine() -> int: ...\n")
    if kind == "file":
        (root / "shop" / "private.py").symlink_to(home / "private.py")
    elif kind == "folder":
        (root / "shop" / "cart.py").unlink()
        (root / "lib").symlink_to(home, target_is_directory=True)
    elif kind == "device":
        (root / "shop" / "private.py").symlink_to("/dev/zero")
    else:
        os.mkfifo(root / "shop" / "private.py")
    module = "lib" if kind == "folder" else "shop"
    source = OwnSource([root], dependencies=True, clock=clock)
    assert ask(source, root, f"from {module}.private import secret_of_mine\nx = ") == []
    (root / "shop" / "here.py").write_text("def shown() -> int: ...\n")
    (root / "shop" / "link.py").symlink_to("here.py")  # what stays inside is followed
    assert len(ask(source, root, "from shop.link import shown\nx = ")) == 1
