"""A question: where somebody asks for a suggestion, in what, and how; and the wait for its answer."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field

from foretype_context.prompt.profile import LineChance, MinMeanLogprob, Profile
from foretype_context.syntax.document import Snapshot

from foretype_client.flow.strands import Place
from foretype_client.flow.suggestion import SelectedCompletion
from foretype_client.policy.trigger import Trigger


@dataclass(slots=True, eq=False)
class Question:
    """What an editor asks, or is expected to ask. At most one per document waits: a newer one takes its place.

    Attributes:
        asked_s: monotonic seconds.
        least: how sure the model must be to be shown; None where whatever it says is wanted.
        drop_broken: whether what adds an error of syntax to the file is taken away.
        superseded: it is answered with nothing, because a newer one, or another text, took its place.
        wake: set when there may be more to answer with.
    """

    snapshot: Snapshot
    offset: int
    place: Place
    trigger: Trigger
    selected: SelectedCompletion | None
    profile: Profile | None
    asked_s: float
    least: MinMeanLogprob | None = None
    drop_broken: bool = True
    superseded: bool = False
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def line_chance(self) -> LineChance:
        """From when on a line is shown; any is to somebody who asked by hand, and where no model says otherwise."""
        return LineChance() if self.profile is None or self.least is None else self.profile.line_chance

    def supersede(self) -> None:
        self.superseded = True
        self.wake.set()

    async def sleep(self, seconds: float) -> None:
        """Until `wake` is set, at most `seconds` (infinity: until it is set)."""
        try:
            async with asyncio.timeout(None if seconds == math.inf else seconds):
                await self.wake.wait()
        except TimeoutError:
            pass

    def selected_rest(self) -> str | None:
        """What of the popup's selected item is not typed yet: every suggestion must start with it.

        Returns:
            "" without a selected item; None if the item does not continue what stands left of the cursor, so that no insertion
            at the cursor can agree with it.
        """
        if self.selected is None:
            return ""
        start, _, text = self.selected
        if not 0 <= start <= self.offset:
            return None
        typed = self.snapshot.text[start : self.offset]
        return text[len(typed) :] if text.startswith(typed) else None
