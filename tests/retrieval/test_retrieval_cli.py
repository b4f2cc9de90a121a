import json
import subprocess
import sys
from pathlib import Path

import typer
from foretype_retrieval.cli import index, search_command
from foretype_retrieval.store import folder_of
from pasting import AWKWARD, commands_in, pasted
from retrieval.workspace import FILES, write_files
from typer.testing import CliRunner

app = typer.Typer()
app.command("index")(index)
app.command("search")(search_command)
runner = CliRunner()


def run(*arguments: object, status: int = 0) -> tuple[str, str]:
    result = runner.invoke(app, [str(one) for one in arguments])
    assert result.exit_code == status, result.output
    return result.stdout, result.stderr


def test_index_then_search_words_and_places(tmp_path: Path) -> None:
    root, cache = write_files(tmp_path / "w"), tmp_path / "cache"
    report = json.loads(run("index", root, "--json", "--cache-dir", cache)[0])
    assert report["files"] == len(FILES) and report["chunks"] == 4 and report["seconds"] >= 0
    found = json.loads(run("search", "format currency", "--json", "--root", root, "--cache-dir", cache)[0])
    assert found["results"][0]["name"] == "format_price" and found["results"][0]["line"] == 1
    write_files(root, {"pay.py": "from shop.cart import Basket\n\nbasket = \n"})
    found = json.loads(run("search", f"{root}/pay.py:3", "--json", "--cache-dir", cache)[0])
    assert found["results"][0]["path"] == "shop/cart.py" and found["results"][0]["source"] == "imports"


def test_people_get_lines_they_can_click(tmp_path: Path) -> None:
    root, cache = write_files(tmp_path / "w"), tmp_path / "cache"
    assert "3 files, 4 definitions" in run("index", root, "--cache-dir", cache)[0]
    out, _ = run("search", "format currency", "--root", root, "--cache-dir", cache, "--limit", 1)
    assert out.startswith("shop/money.py:1  format_price")


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert "not a folder" in run("index", tmp_path / "gone", "--cache-dir", tmp_path / "c", status=1)[1]


def test_search_without_an_index_says_how_to_make_one(tmp_path: Path) -> None:
    said = run("search", "x", "--root", tmp_path, "--cache-dir", tmp_path / "c", status=1)[1]
    assert f"{tmp_path} is not indexed; run `foretype index {tmp_path}`" in said.replace("\n", "")


def test_the_command_that_makes_an_index_can_be_pasted(tmp_path: Path) -> None:
    folder = tmp_path / AWKWARD
    folder.mkdir()
    said = run("search", "x", "--root", folder, "--cache-dir", tmp_path / "c", status=1)[1]
    (command,) = commands_in(said)
    assert pasted(command, tmp_path, "foretype") == [["foretype", "index", str(folder)]]


def test_a_missing_embedder_is_a_note_not_a_failure(tmp_path: Path, root: Path) -> None:
    said = run("index", root, "--cache-dir", tmp_path / "c", "--embedder", tmp_path / "none.npz")[1]
    assert "words alone" in said


INTERRUPTED = """
import os, signal, typer
from foretype_retrieval import indexing
from foretype_retrieval.cli import index
make_entry = indexing.make_entry
signal.signal(signal.SIGINT, signal.default_int_handler)  # who starts the tests in the background has it ignored
def interrupted(path, *rest):
    if path == "m5.py":
        os.kill(os.getpid(), signal.SIGINT)
    return make_entry(path, *rest)
indexing.make_entry = interrupted
typer.run(index)
"""


def test_interrupting_keeps_the_old_index(tmp_path: Path) -> None:
    root, cache = write_files(tmp_path / "w"), tmp_path / "cache"
    run("index", root, "--cache-dir", cache)
    stored = folder_of(cache, root) / "index.ftx"
    before = stored.read_bytes()
    write_files(root, {f"m{number}.py": "def f(): pass\n" for number in range(10)})
    command = [sys.executable, "-c", INTERRUPTED, str(root), "--cache-dir", str(cache)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 130 and "as it was" in done.stderr
    assert stored.read_bytes() == before
