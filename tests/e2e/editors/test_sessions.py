"""Sessions of a hundred keys in each editor: no stray character, no stale accept, no unanswered request, no error shown.

FORETYPE_SESSIONS says how many (1 where it is not set).
"""

import os
import random
from contextlib import closing

import pytest
from e2e.editors.driven import EDITORS
from e2e.editors.session_support import Session, Tapped, tapping
from e2e.editors.terminal_support import available
from e2e.lsp_support import gateway, server_command

SESSIONS = int(os.environ.get("FORETYPE_SESSIONS", "1"))
KEYS = 100
SETTLED_S = 30.0
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with gateway(tmp_path_factory.mktemp("gateway"), decode_s=0.005, prefill_s=0.0005) as running:
        yield running


@pytest.mark.parametrize("seed", range(SESSIONS))
@pytest.mark.parametrize("name", EDITORS)
def test_a_hundred_keys_leave_what_was_typed_and_accepted_and_nothing_else(served, tmp_path, name, seed):
    kind = available(EDITORS[name])
    log, tap = tmp_path / "lsp.log", tmp_path / "tap.jsonl"
    with closing(kind(tmp_path, tapping(tap, server_command("--gateway", served.url, log=log)))) as editor:
        tapped = Tapped(tap)
        session = Session(editor, tapped, random.Random(seed), left=editor.left, right=editor.right)
        session.play(KEYS)
        assert tapped.settled(SETTLED_S) == []
        assert tapped.errors() == []
        assert editor.complaints() == []
        assert "ERROR" not in log.read_text()
