"""Replicas that run while a block does."""

import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from backend.replica import Replica
from backend.world import TOKENIZER

__all__ = ["replicas"]


@contextlib.asynccontextmanager
async def replicas(count: int, **options: Any) -> AsyncGenerator[list[Replica]]:
    """So many that run, with the vocabulary of the tests' tokenizer."""
    async with contextlib.AsyncExitStack() as stack:
        options = {"vocabulary": TOKENIZER.vocabulary_tokens} | options
        yield [await stack.enter_async_context(Replica(**options)) for _ in range(count)]
