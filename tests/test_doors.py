"""A folder is data: to what can hurt there is one door each, and these tests find every other way in our packages' source."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("wire", "client", "lsp_server", "context", "retrieval", "backend", "eval", "models", "lab")

STARTERS = {
    "context/foretype_context/folder/git.py": "the door to git",
    "client/foretype_client/private_gateway/starting.py": "the private gateway",
    "client/foretype_client/private_gateway/choosing.py": "`foretype use`, for an editor",
    "models/foretype_models/fetch/pip.py": "the package client, which fetches the public base",
    "retrieval/foretype_retrieval/worker.py": "the indexing process",
    "retrieval/foretype_retrieval/embedder_process.py": "the embedding process",
    "backend/foretype_backend/engines/embedded/process.py": "the engine's process",
    "backend/foretype_backend/operations/workers.py": "the gateway's workers",
    "backend/foretype_backend/fleet/ray/engine_process.py": "a replica's `vllm serve`",
    "backend/foretype_backend/fleet/ray/head.py": "Ray's head, by `foretype fleet up`",
}
"""Modules of what users and operators run that start processes, and which. Benches and the laboratory start what they measure."""

LABORATORY = ("eval/", "lab/")
GIT = {"context/foretype_context/folder/git.py", "lab/foretype_lab/corpus/download.py"}
"""The door; and the laboratory's downloads, which fetch into folders of their own."""

SHELLS = {
    "os.system",
    "os.popen",
    "asyncio.create_subprocess_shell",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
}
STARTS = {
    *(f"subprocess.{name}" for name in ("run", "Popen", "call", "check_call", "check_output")),
    "asyncio.create_subprocess_exec",
    *(f"os.{name}{kind}" for name in ("exec", "spawn") for kind in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")),
    "os.posix_spawn",
    "os.posix_spawnp",
    "os.startfile",
}
BANNED = {"dulwich", "pygit2", "git", "pathspec", "fnmatch", "sh", "plumbum"}


@cache
def trees() -> dict[str, ast.Module]:
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    assert len(files) > 300
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8")) for path in files}


@cache
def calls(path: str) -> list[tuple[str, ast.Call]]:
    """Calls with a name as it would be imported: `run(...)` after `from subprocess import run` too."""
    nodes = list(ast.walk(trees()[path]))
    names = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    named = [(dotted(node.func), node) for node in nodes if isinstance(node, ast.Call)]
    return [(names.get(said, said), node) for said, node in named]


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def test_processes_are_started_by_the_modules_that_say_so_and_by_no_other() -> None:
    found = {
        path
        for path, tree in trees().items()
        if not path.startswith(LABORATORY) and any(name in STARTS for name, _ in calls(path))
    }
    assert found == set(STARTERS)


def test_no_shell_is_ever_started() -> None:
    for path in trees():
        for name, call in calls(path):
            assert name not in SHELLS, f"{path}:{call.lineno}"
            assert not any(one.arg == "shell" for one in call.keywords), f"{path}:{call.lineno}"


def test_git_is_started_by_its_door_alone() -> None:
    for path, tree in trees().items():
        if path in GIT or not any(name in STARTS for name, _ in calls(path)):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                words = node.value.replace("\\", "/").split()
                said = words[0].rpartition("/")[2] if words else ""
                assert said not in ("git", "git.exe"), (
                    f"{path}:{node.lineno} names git: go through foretype_context.folder.git"
                )


def test_a_started_module_is_never_looked_for_in_the_working_directory() -> None:
    started = 0
    for path, tree in trees().items():
        for node in ast.walk(tree):
            words = (
                node.elts if isinstance(node, ast.List | ast.Tuple) else node.args if isinstance(node, ast.Call) else []
            )
            texts = [one.value for one in words if isinstance(one, ast.Constant)]
            if "-m" in texts and len(texts) > 1 and "python" not in texts:
                started += 1
                assert "-P" in texts[: texts.index("-m")], f"{path}:{node.lineno} starts a module without -P"
    assert started >= 8


def test_no_library_with_another_way_in_is_imported() -> None:
    found = {(path, one) for path, tree in trees().items() for one in imports(tree) if one.split(".")[0] in BANNED}
    # The one that may is the laboratory's own list of licences.
    assert {item for item in found if item[0] != "lab/foretype_lab/corpus/terms.py"} == set()


PRINTERS = {
    "context/foretype_context/terminal.py": "the way to a terminal",
    "retrieval/foretype_retrieval/worker.py": "JSON to the process that started it",
    "eval/foretype_eval/sandbox/zygote.py": "JSON to the process that started it",
    "lab/foretype_lab/other_gateways/sse_engine.py": "its port to the process that started it",
    "lab/foretype_lab/retrieval/index_bench.py": "JSON to the process that started it",
    "lab/foretype_lab/corpus/prepare.py": "the laboratory",
}


def test_text_goes_to_a_terminal_by_one_way() -> None:
    ways = {
        "print",
        "typer.echo",
        "typer.secho",
        "click.echo",
        "click.secho",
        "rich.print",
        "rich.console.Console",
        "Console",
    }
    for path in trees():
        if path in PRINTERS or path.startswith(("lab/foretype_lab/embedder/", "lab/gpu/")):
            continue
        for name, call in calls(path):
            assert name not in ways and name not in ("sys.stdout.write", "sys.stderr.write"), (
                f"{path}:{call.lineno} prints: go through foretype_context.terminal"
            )


READERS = {
    "context/foretype_context/folder/small_files.py": "the reader",
    "context/foretype_context/folder/git.py": "what git said on its standard error",
    "context/foretype_context/tokens/tokenizer.py": "tokenizers that the user or the gateway named",
    "client/foretype_client/adaptive/mixture.py": "a file of the package",
    "client/foretype_client/commands/shared.py": "the token's file, which the user named",
    "client/foretype_client/private_gateway/starting.py": "the private gateway's log",
    "client/foretype_client/telemetry/spool.py": "the spool in the state directory",
    "client/foretype_client/session/tokenizers.py": "the cache directory",
    "lsp_server/foretype_lsp/gateway_client.py": "the token's file, which the user named",
    "retrieval/foretype_retrieval/cli.py": "the file that the user named",
    "retrieval/foretype_retrieval/static_embedder.py": "a table that the user named",
}


def test_files_of_a_folder_are_read_by_one_reader() -> None:
    for path in trees():
        if path in READERS:
            continue
        if path.startswith(("context/", "client/", "lsp_server/", "retrieval/")):
            for name, call in calls(path):
                reads = (
                    name == "open"
                    or name.endswith((".read_text", ".read_bytes"))
                    or (isinstance(call.func, ast.Attribute) and call.func.attr in ("read_text", "read_bytes"))
                )
                assert not reads, f"{path}:{call.lineno} reads a file: go through foretype_context.folder.small_files"
