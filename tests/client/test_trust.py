"""A client in a folder that its user does not trust. What its whole process opens there: tests/e2e/test_lsp_trust.py."""

from pathlib import Path
from typing import Any

import pytest
from foretype_client.client import ClientOptions, open_client
from foretype_client.telemetry.sender import Telemetry


@pytest.mark.parametrize(("trusted", "told"), [(True, "ref: refs/heads/main"), (False, "")])
async def test_the_branch_of_an_untrusted_folder_is_never_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool, told: str
) -> None:
    """It is looked up 15 s after a suggestion was accepted."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/HEAD").write_text("ref: refs/heads/main\n")
    looks: list[Any] = []

    class Told(Telemetry):
        def __init__(self, *arguments: Any, head_of: Any, **options: Any) -> None:
            looks.append(head_of)
            super().__init__(*arguments, head_of=head_of, **options)

    monkeypatch.setattr("foretype_client.client.Telemetry", Told)
    options = ClientOptions(
        gateway="ws://127.0.0.1:9/v1/stream", state_dir=tmp_path / "state", telemetry=True, trusted=trusted
    )
    async with open_client(options):
        assert [look((tmp_path / "a.py").as_uri()) for look in looks] == [told]
