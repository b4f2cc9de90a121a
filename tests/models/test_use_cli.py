"""What `foretype use` without a name says where nobody can be asked."""

from pathlib import Path

import pytest
from foretype_context.terminal import console
from foretype_models.use import cli
from foretype_models.use.listing import ListedChoice, Listing
from pasting import AWKWARD, pasted


def test_the_command_that_takes_the_proposal_can_be_pasted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / AWKWARD / "model.gguf")
    row = ListedChoice(asked=file, title="a file", detail="", proposed=True)
    listing = Listing(current="shipped", good=False, machine="", rows=[row], why="", notes=[])
    assert cli._agreed(console(width=40), listing, yes=False) is None
    command = capsys.readouterr().out.partition("To take it: ")[2]
    assert pasted(command, tmp_path, "foretype") == [["foretype", "use", file]]
