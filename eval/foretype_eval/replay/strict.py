"""The strict client: asks anew after every key and shows only what arrives before the next one.

What most clients do. Beside the product's flow it shows what reusing late answers is worth.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

from foretype_client.adaptive.candidates import LocalModel
from foretype_client.flow.attempt import Planner
from foretype_client.flow.planning import call_of
from foretype_client.flow.suggestion import Origin, Suggestion
from foretype_client.policy.trigger import Trigger
from foretype_client.ports import Gateway
from foretype_context.finish.post_processing import finish
from foretype_context.prompt.healing import strip_healed
from foretype_context.prompt.plan import PlanState
from foretype_context.syntax.document import Change, Snapshot
from foretype_wire.messages import Delta, Profile


class StrictFlow:
    """Debounce, one request, its whole answer; a newer question cancels the older one."""

    def __init__(
        self,
        gateway: Gateway,
        planner_for: Callable[[Profile], Planner | None],
        *,
        debounce_s: float,
        local: LocalModel | None,
    ) -> None:
        self._gateway = gateway
        self._planner_for = planner_for
        self._debounce_s = debounce_s
        self._local = local
        self._ids = count(1)
        self._asked = 0
        self._state = PlanState.empty()

    def document_opened(self, snapshot: Snapshot) -> None:
        """Nothing is kept between questions."""

    document_closed = document_opened

    def document_changed(self, change: Change) -> None:
        """Nothing is kept between questions."""

    def accepted(self, id: str) -> None:
        """Nothing is kept between questions."""

    def partially_accepted(self, id: str, characters: int) -> None:
        """Nothing is kept between questions."""

    async def suggest(self, snapshot: Snapshot, offset: int, *, trigger: Trigger) -> Suggestion | None:
        self._asked += 1
        mine = self._asked
        if self._local is not None:
            found = self._local.suggest(snapshot, offset)
            return Suggestion(id=f"l{mine}", text=found.text, source=Origin.LOCAL) if found is not None else None
        profile = self._gateway.profile
        planner = None if profile is None else self._planner_for(profile)
        if planner is None:
            return None
        await asyncio.sleep(self._debounce_s)
        if mine != self._asked:
            return None
        plan, self._state = planner.plan(self._state, snapshot, offset, now=asyncio.get_running_loop().time())
        call = call_of(plan, snapshot, id=f"s{next(self._ids)}")
        stream, parts = self._gateway.complete(call), list[str]()
        async for event in stream:
            if mine != self._asked:
                stream.cancel()
            if isinstance(event, Delta):
                parts.append(event.text)
        if mine != self._asked:
            return None
        text = strip_healed("".join(parts), plan.healed)
        if text is None:
            return None
        finished = finish(text, snapshot, offset, kind=plan.kind_of(text), final=True)
        return Suggestion(id=call.id, text=finished.text, source=Origin.NETWORK) if finished.text else None
