"""What is computed ahead of the first key: the product's queue of warm-ups (`fleet.warmups`), on a cell."""

from __future__ import annotations

from typing import Final

from foretype_backend.fleet.warmups import PromptBeginning, WarmQueue
from foretype_backend.prefix.origin import Origin

from foretype_plan.simulation.cell import Cell
from foretype_plan.simulation.people import Prompt

_LOOK_S: Final = 0.1
_LOWEST: Final = 9


class Warmer:
    """When a developer opens an editor, the repository's part and the file's are warmed, `ahead_s` before the first key.

    Args:
        cell: whose developers have not begun yet.
    """

    def __init__(self, cell: Cell, *, ahead_s: float = 20.0) -> None:
        self._cell = cell
        self._queue = WarmQueue()
        self._wanted: dict[bytes, tuple[str, str, str, Prompt]] = {}
        self._count = 0
        for developer, begin_s in cell.beginnings:
            cell.time.at(
                begin_s - ahead_s, lambda one=developer: self._offer(one.tenant, one.repository, one.name, one.peek())
            )
        cell.time.every(_LOOK_S, self._look)

    def _offer(self, tenant: str, repository: str, session: str, prompt: Prompt) -> None:
        shared = sum(block.key.startswith(f"{tenant}/".encode()) for block in prompt.chain)
        for rank, blocks in enumerate((shared, len(prompt.chain))):
            if blocks:
                part = prompt._replace(
                    keys=prompt.keys[:blocks], chain=prompt.chain[:blocks], tokens=prompt.chain[blocks - 1].end
                )
                self._wanted[part.keys[-1]] = tenant, repository, session, part
                self._queue.offer(PromptBeginning(part.keys[-1], rank, (), "", Origin()), self._cell.time.now)

    def _look(self) -> None:
        loads = {one.name: one.engine.running + one.engine.waiting for one in self._cell.fleet.replicas.serving()}
        for replica, part in self._queue.take(loads, self._place, self._cell.time.now):
            tenant, repository, session, prompt = self._wanted[part.key]
            self._count += 1
            done = lambda name=replica: self._queue.done(name, self._cell.time.now, computed=True)
            self._cell.fleet.warm(f"w{self._count}", replica, tenant, repository, session, prompt, _LOWEST, done)

    def _place(self, part: PromptBeginning) -> str | None:
        tenant, repository, session, prompt = self._wanted[part.key]
        choice = self._cell.fleet.book.choose(tenant, repository, session, prompt, frozenset())
        return None if choice is None or choice.cached_tokens >= prompt.tokens - 1 else choice.replica
