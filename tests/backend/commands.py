"""Commands of the whole `foretype`, as a program calls them."""

import json
from typing import Any

from foretype_client.commands.cli import app
from typer.testing import CliRunner

__all__ = ["run"]


def run(*arguments: str, code: int = 0) -> Any:
    """What a command prints as JSON, or where it prints nothing what it says of an error."""
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == code, (arguments, result.output)
    return json.loads(result.stdout) if result.stdout.strip() else result.stderr
