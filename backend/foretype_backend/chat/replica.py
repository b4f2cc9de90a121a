"""One replica of a chat model among several: `vllm serve` as :class:`VllmServerEngine` knows it, asked for conversations.

The token ids of a prompt only say what of it is likely to be cached.
"""

from __future__ import annotations

from dataclasses import replace

from foretype_backend.chat.engine import Conversations
from foretype_backend.engines.port import Capabilities
from foretype_backend.engines.vllm.server import VllmServerEngine


class ChatReplica(Conversations, VllmServerEngine):
    """See the module."""

    aborted_as = "chatcmpl-{}"
    reads_ids = False
    arguments = (*VllmServerEngine.arguments, "free_model")
    checked_with = '{"messages":[{"role":"user","content":"x"}]}'

    def capabilities(self) -> Capabilities:
        return replace(super().capabilities(), token_ids=False, logprobs=False)
