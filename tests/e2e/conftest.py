"""Gateways that many files share: no test here changes one, and those that kill theirs start their own."""

from contextlib import closing

import pytest
from e2e.chat_support import ChatServer
from e2e.lsp_support import gateway


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    """A gateway that answers by a script."""
    with gateway(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture(scope="session")
def chat():
    """A chat server that follows a script."""
    with closing(ChatServer()) as running:
        yield running


@pytest.fixture(scope="session")
def chatting(tmp_path_factory, chat):
    """A gateway with a quality pool; blocks go to its scripted engine, which takes its time: a suggestion grows on the screen."""
    with gateway(tmp_path_factory.mktemp("chatting"), decode_s=0.02, more=chat.pool) as running:
        yield running
