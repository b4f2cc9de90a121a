"""A simulated model that knows a share of the lines: for policies, whose worth shows only where suggestions are right.

Which lines it knows is drawn once per line, not per request, as a real model is right again where it was right a key before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Final

from foretype_context.prompt.segments import Kind, Segment
from foretype_wire.messages import Complete

from foretype_eval.replay.commits import Stretch

_LOOK_CHARS: Final = 160


def oracle_of(
    stretches: Sequence[Stretch], share: float, seed: int, otherwise: Callable[[Complete[Segment]], str]
) -> Callable[[Complete[Segment]], str]:
    """A predictor for :class:`~foretype_eval.replay.trace.SimulatedGateway`.

    Args:
        stretches: what will be typed.
        share: of the lines that are known, 0 to 1.
        otherwise: answers for all other lines.
    """
    written = [(one.path, len(one.before), one.before + one.target + one.after) for one in stretches]

    def known(path: str, line: str) -> bool:
        drawn = blake2b(f"{seed}\0{path}\0{line.strip()}".encode("utf-8", "replace"), digest_size=4).digest()
        return int.from_bytes(drawn) < share * 2**32

    def predict(call: Complete[Segment]) -> str:
        left = "".join(one.text for one in call.segments if one.kind in (Kind.PREFIX, Kind.MIDDLE))[-_LOOK_CHARS:]
        for path, typed_from, whole in written:
            at = whole.find(left, max(0, typed_from - len(left))) if call.document.endswith(path) else -1
            if at < 0:
                continue
            offset = at + len(left)
            start, end = whole.rfind("\n", 0, offset) + 1, whole.find("\n", offset)
            end = len(whole) if end < 0 else end
            if known(path, whole[start:end]):
                return whole[offset:end]
            break
        return otherwise(call)

    return predict
