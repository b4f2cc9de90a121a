"""No token stands in what processes were started with, which every user of a machine can list."""

import asyncio
import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from e2e.lsp_support import DEADLINE_S, SOURCE, URI, editor, gateway
from e2e.processes import PYTHON_SCRIPT, who_was_given

TOKEN = f"sesame-{secrets.token_hex(8)}"  # other tests on the machine have tokens too


@pytest.fixture
def kept(tmp_path):
    """A file with the token."""
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    return file


def foretype(*words, **options):
    command = [str(Path(sys.executable).with_name("foretype")), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S, **options)


def test_a_token_among_the_arguments_would_be_seen():
    with subprocess.Popen([sys.executable, "-c", "input()", TOKEN], stdin=subprocess.PIPE) as process:
        try:
            assert [words[-1] for words in who_was_given(TOKEN)] == [TOKEN]
        finally:
            process.kill()


@pytest.mark.slow
def test_the_playground_is_opened_by_a_code_that_works_once(tmp_path, kept):
    """What the browser is started with stands in the list of processes and in the browser's history."""
    told = tmp_path / "browser.json"
    browser = tmp_path / "browser"
    browser.write_text(
        f"{PYTHON_SCRIPT}import json, sys\nfrom pathlib import Path\n"
        f"Path({str(told)!r}).write_text(json.dumps([sys.argv, Path('/proc/self/cmdline').read_text()]))\n"
    )
    browser.chmod(0o755)
    with gateway(tmp_path, options=("--token-file", kept, "--workers", "2")) as served:
        asked = ("playground", "--gateway", served.url, "--token-file", kept)
        done = foretype(*asked, "--browser", env={**os.environ, "BROWSER": f"{browser} %s"})
        assert done.returncode == 0, done.stderr
        (_, page), listed = json.loads(told.read_text())
        assert page == done.stdout.strip() and TOKEN not in page + listed
        base, _, code = page.partition("#code=")
        assert base == f"http://127.0.0.1:{served.port}/playground" and code
        login = [httpx.post(f"{base}/login", json={"code": code}, trust_env=False).status_code for _ in range(3)]
        assert login == [200, 401, 401]
        assert who_was_given(TOKEN) == []  # nor do the gateway's workers have it
        refused = foretype(
            "playground", "--gateway", served.url, "--no-browser", env={**os.environ, "FORETYPE_TOKEN": "x"}
        )
        assert refused.returncode == 1 and "check the token" in refused.stderr


@pytest.mark.slow
async def test_a_language_server_and_all_that_it_starts_have_none(tmp_path, kept):
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.py").write_text(SOURCE)
    with gateway(tmp_path, options=("--token-file", kept)) as served:
        options = {"gatewayUrl": served.url, "token": TOKEN, "index": {"cacheDir": str(tmp_path / "cache")}}
        async with editor(tmp_path, options=options, folders=[project]) as it:
            it.open(SOURCE, URI)
            async with asyncio.timeout(DEADLINE_S):
                while "ready" not in (await it.status())["index"]:
                    assert who_was_given(TOKEN) == []
            assert who_was_given(TOKEN) == []
        assert TOKEN not in (tmp_path / "lsp.log").read_text()
