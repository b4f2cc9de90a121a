"""deploy/fleet.toml, by the commands of docs/deploy.md in their order; `vllm` is the scripted engine, and ports are free ones."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from e2e.processes import PYTHON_SCRIPT
from fleet.support import ENGINE, FORETYPE, LIMIT_S, Fleet

ROOT = Path(__file__).parents[2]


class Example(Fleet):
    """The file that ships, in a copy of its folder."""

    name = "team"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "")
        (folder / "deploy").mkdir()
        (folder / "deploy" / "profiles").symlink_to(ROOT / "deploy" / "profiles")
        text = (ROOT / "deploy" / "fleet.toml").read_text()
        ours = f'port = {self.port}\ndashboard_port = {self.dashboard}\nfolder = "{self.sockets}"\n'
        text = text.replace("\ncpus = 4", f"\n{ours}cpus = 4").replace("port = 8100", f"port = {self.listens}")
        (folder / "deploy" / "fleet.toml").write_text(text)


def test_the_example_comes_up_and_goes_down_by_the_commands_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    vllm = tmp_path / "bin" / "vllm"
    vllm.write_text(PYTHON_SCRIPT + f"import runpy\nrunpy.run_path({str(ENGINE)!r}, run_name='__main__')\n")
    vllm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{FORETYPE.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = Example(tmp_path)
    made.state = tmp_path / "foretype"
    page = (ROOT / "docs" / "deploy.md").read_text("utf-8").partition("## A fleet on Ray")[2]
    [block] = re.findall(r"^```bash\n(.*?)^```$", page.partition("\n## ")[0], re.DOTALL | re.MULTILINE)
    said: dict[str, str] = {}
    try:
        for line in block.splitlines():
            done = subprocess.run(
                line.split(), cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
            made._remember()
            assert done.returncode in ((0, 1) if " status " in line else (0,)), (line, done.stderr)
            said[line.split()[2]] = done.stdout
        assert list(said) == ["up", "status", "scale", "config", "down"]
        assert "team is up" in said["up"] and "foretype-135m" not in said["status"] and "fast" in said["status"]
        assert "applications:" in said["config"] and said["down"].startswith("team is down")
        assert made.processes() == []
    finally:
        made.close()
