"""What our gateway says of a request, read once from vLLM's request context."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from vllm.v1.kv_offload.base import OffloadKey, ReqContext

from foretype_backend.errors import PlacementError
from foretype_backend.prefix.spans import Placement, placement_of

_log = logging.getLogger("foretype.vllm")


@dataclass
class _Read:
    placement: Placement


def placement_in(req_context: ReqContext) -> Placement:
    """What the request is made of; empty, and so kept on the host, where the parameters cannot be read."""
    read = req_context.get_state(_Read)
    if read is None:
        try:
            placement = placement_of(req_context.kv_transfer_params)
        except PlacementError as error:
            _log.warning("a request's placement is not used: %s", error)
            placement = Placement("", ())
        read = _Read(placement)
        req_context.set_state(read)
    return read.placement


def positions_of(keys: Sequence[OffloadKey], req_context: ReqContext) -> tuple[list[tuple[bytes, int]], int]:
    """The keys whose end in the prompt is known, and the tokens of a chunk: the least distance of two ends."""
    ends = [(bytes(key), end) for key in keys if (end := req_context.get_offload_key_position(key)) is not None]
    places = sorted({0, *(end for _, end in ends)})
    chunk = min((after - before for before, after in pairwise(places)), default=1)
    return ends, chunk
