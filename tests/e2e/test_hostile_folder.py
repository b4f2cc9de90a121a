"""A folder that was made to run commands is opened by everything that opens folders, and nothing of it runs."""

import asyncio
import os
import sys
from pathlib import Path

import pytest
from e2e.hostile_folder import MODULES, SHAPES, SOURCE, Trap
from e2e.lsp_support import Editor
from e2e.test_lsp_context import DEADLINE_S, indexed, keeping
from foretype_eval.replay.trace import LatencyTrace, TraceRow
from lsprotocol import types
from pytest_lsp.client import make_test_lsp_client

FORETYPE = str(Path(sys.executable).parent / "foretype")


def environment(trap: Trap, tmp_path: Path, *, programs: bool) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GIT_", "FORETYPE_"))}
    # As where the folder's own environment is active: its programs come first.
    first = f"{trap.programs}{os.pathsep}.{os.pathsep}" if programs else ""
    return kept | {
        "PATH": first + kept["PATH"],
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "HOME": str(tmp_path),
    }


async def command(trap: Trap, tmp_path: Path, *arguments: str, programs: bool = False) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        FORETYPE,
        *arguments,
        cwd=trap.folder,
        env=environment(trap, tmp_path, programs=programs),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(DEADLINE_S):
        said, _ = await process.communicate()
    return process.returncode, said.decode()


async def opened_in_an_editor(trap: Trap, tmp_path: Path, gateway: str) -> None:
    client = make_test_lsp_client()
    await client.start_io(
        FORETYPE, "lsp", "--gateway", gateway, cwd=trap.folder, env=environment(trap, tmp_path, programs=False)
    )
    it = Editor(client)
    try:
        await client.initialize_session(
            types.InitializeParams(
                capabilities=types.ClientCapabilities(),
                workspace_folders=[types.WorkspaceFolder(trap.folder.as_uri(), "opened")],
                initialization_options={"debounceMs": 0, "index": {"dependencies": True}},
                process_id=os.getpid(),
            )
        )
        await it.until("ready")
        await indexed(it)
        it.open(SOURCE, uri=trap.file.as_uri())
        assert await it.suggestion(4, 24, uri=trap.file.as_uri()) is not None
        async with asyncio.timeout(DEADLINE_S):
            await client.shutdown_session()
    finally:
        if client._server.returncode is None:
            client._server.kill()
        await client.stop()


async def test_nothing_of_a_folder_is_executed_by_an_editor_and_a_command(tmp_path: Path) -> None:
    trap = Trap(tmp_path / "made", "plain")
    async with keeping() as kept:
        await opened_in_an_editor(trap, tmp_path, kept.url)
        code, said = await command(trap, tmp_path, "doctor", "--gateway", kept.url, programs=True)
        assert trap.sprung() == [], (code, said)
    trap.spring()
    assert "remote.origin.url" in trap.sprung(), "the trap is not set"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("shape", SHAPES)
async def test_nothing_of_an_opened_folder_is_executed(tmp_path: Path, shape: str) -> None:
    trap = Trap(tmp_path / "made", shape)
    place = f"{trap.file}:5:25"
    LatencyTrace([TraceRow([50.0], 100.0)]).save(tmp_path / "trace.jsonl")
    traced = ("--latency-trace", str(tmp_path / "trace.jsonl"), "--systems", "copy_line,adaptive")
    async with keeping() as kept:
        await opened_in_an_editor(trap, tmp_path, kept.url)
        assert trap.sprung() == [], "opened in an editor"
        for arguments, expected in (
            (("complete", place, "--gateway", kept.url), 0),
            (("explain", place, "--gateway", kept.url), 0),
            (("index", "."), 0),
            (("search", "total basket"), 0),
            (("eval", "replay", "--repo", ".", "--commits", "1", "--simulate", *traced, "--json"), 0),
            (("prefix", "show", "."), 2),  # no gateway for operators answers here; the folder's id was asked for before
            (("doctor", "--gateway", kept.url), None),
        ):
            code, said = await command(trap, tmp_path, *arguments)
            assert trap.sprung() == [], arguments
            assert expected in (None, code), said
        for arguments in (("complete", place, "--gateway", kept.url), ("doctor", "--gateway", kept.url)):
            await command(trap, tmp_path, *arguments, programs=True)
            assert trap.sprung() == [], arguments
    trap.spring()
    marks = trap.sprung()
    assert "remote.origin.url" in marks, f"the trap is not set: {marks}"


@pytest.mark.parametrize("module", ["foretype_lsp", "foretype_backend", "foretype_retrieval.worker"])
async def test_a_folders_modules_would_run_where_python_looks_into_the_working_directory(
    tmp_path: Path, module: str
) -> None:
    """The control of the modules: started without `-P`, and in the folder, they are imported in place of ours."""
    trap = Trap(tmp_path / "made", "plain")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        cwd=trap.folder,
        env=environment(trap, tmp_path, programs=False),
        stderr=asyncio.subprocess.DEVNULL,
    )
    await process.wait()
    assert {f"module_{name}" for name in MODULES} & set(trap.sprung())


@pytest.mark.slow
async def test_ignore_files_and_sources_that_hurt_hold_nobody_up(tmp_path: Path) -> None:
    trap = Trap(tmp_path / "made", "plain")
    for name in MODULES:
        (trap.folder / f"{name}.py").unlink()
    for number in range(200):
        (trap.folder / ("a" * 60 + f"{number:03}.py")).write_text("x = 1\n")
    (trap.folder / ".gitignore").write_text("".join(f"{'*a' * 7}*b{number}\n" for number in range(300)))
    for name, target in (("zero", "/dev/zero"), ("loop", "loop/.gitignore"), ("host", "/etc/passwd")):
        (trap.folder / name).mkdir()
        (trap.folder / name / ".gitignore").symlink_to(target)
        (trap.folder / name / "a.py").write_text("y = 1\n")
    (trap.folder / "pipe").mkdir()
    os.mkfifo(trap.folder / "pipe" / ".gitignore")
    os.mkfifo(trap.folder / "pipe" / "a.py")
    (trap.folder / "lib.py").unlink()
    (trap.folder / "lib.py").symlink_to("/dev/zero")
    (trap.folder / "package.json").symlink_to("/dev/zero")
    async with keeping() as kept:
        await opened_in_an_editor(trap, tmp_path, kept.url)
        for arguments in (("complete", f"{trap.file}:5:25", "--gateway", kept.url), ("index", ".")):
            code, said = await command(trap, tmp_path, *arguments)
            assert code == 0, said
    assert trap.sprung() == []
