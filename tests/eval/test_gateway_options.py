from pathlib import Path

import pytest
from foretype_eval.cli import app, bench
from foretype_eval.gateway_options import gateway_options
from typer.testing import CliRunner


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", b"\nsecond line\n"])
@pytest.mark.parametrize(
    "command",
    [
        (bench, "latency"),
        (bench, "load"),
        (app, "fim", "--data", "x.jsonl"),
        (app, "replay", "--repo", "."),
    ],
)
def test_a_token_file_without_a_token_is_named(tmp_path: Path, content: bytes | None, command: tuple) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    group, *arguments = command
    result = CliRunner().invoke(group, [*arguments, "--gateway", "ws://127.0.0.1:9/", "--token-file", str(file)])
    assert result.exit_code == 2 and "--token-file" in result.stderr and "token" in result.stderr
    assert isinstance(result.exception, SystemExit)


def test_the_first_line_is_the_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(" secret \nnot this\n")
    assert gateway_options("ws://x", tmp_path / "token").token == "secret"
    assert gateway_options(None, None).token is None
