"""The image's health check finds the gateway as its file has it: another port, or a certificate of its own."""

import asyncio
import re
import sys
from pathlib import Path

import pytest
from backend.test_faults import certificate
from backend.test_gateway_process import serving
from foretype_backend.config.settings import DEFAULT_PORT
from foretype_backend.operations.ready_check import main, readiness_url
from foretype_lab.processes import free_ports

DOCKERFILE = Path(__file__).parents[2] / "deploy/Dockerfile"


@pytest.mark.parametrize("tls", [False, True])
async def test_the_images_health_check_is_right_with_a_certificate_and_another_port(tmp_path: Path, tls: bool) -> None:
    """It asked http://127.0.0.1:7878: a gateway with its own certificate was unhealthy for ever."""
    (check,) = re.findall(r'^HEALTHCHECK .* CMD \["python", "-m", "(\S+)"\]$', DOCKERFILE.read_text(), re.MULTILINE)
    [port] = free_ports(1)
    path, key = certificate(tmp_path, days=1)
    own = f"tls_cert_file = '{path}'\ntls_key_file = '{key}'\n" if tls else ""
    profile = tmp_path / "t.toml"
    profile.write_text(f"[gateway]\nport = {port}\n{own}[engine]\nname = 'scripted'\n")

    async def healthy() -> tuple[int | None, str]:
        asked = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", check),
            env={"FORETYPE_PROFILE": str(profile), "PATH": ""},
            stderr=asyncio.subprocess.PIPE,
        )
        _, told = await asked.communicate()
        return asked.returncode, told.decode()

    code, told = await healthy()
    assert code == 1 and told.startswith("not ready: "), told
    arguments = ("--profile", str(profile), "--state-dir", str(tmp_path / "state"), "--no-telemetry")
    async with serving(*arguments, scheme="https" if tls else "http"):
        assert await healthy() == (0, "")


def test_where_a_file_says_nothing_the_defaults_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.toml").write_text("")
    assert readiness_url(tmp_path / "t.toml") == f"http://127.0.0.1:{DEFAULT_PORT}/readyz"
    for wrong in ("none.toml", "broken.toml"):
        (tmp_path / "broken.toml").write_text("= 1")
        monkeypatch.setenv("FORETYPE_PROFILE", str(tmp_path / wrong))
        assert str(main()).startswith("not ready: ")
