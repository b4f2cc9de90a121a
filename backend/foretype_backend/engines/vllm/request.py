"""One request as vLLM takes it, and what its outputs mean. No vLLM is imported here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from foretype_context.prompt.segments import Scope

from foretype_backend.engines.port import GenerationParams
from foretype_backend.prefix.origin import Origin
from foretype_backend.prefix.salt import tier_namespace
from foretype_backend.prefix.spans import Placed, Placement, to_parameters

_STABLE: Final = frozenset({Scope.GLOBAL, Scope.REPOSITORY, Scope.FILE})


def sampling_arguments(
    params: GenerationParams, max_tokens: int, tiers: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Arguments of vLLM's `SamplingParams`. The model's own end token counts only where the request names it.

    Args:
        max_tokens: what the context leaves of `params.max_tokens`.
        tiers: what :func:`tier_parameters` made.
    """
    return {
        "max_tokens": max_tokens,
        "temperature": params.temperature,
        "stop_token_ids": sorted(params.end_token_ids),
        "allowed_token_ids": list(params.first_of) or None,
        "ignore_eos": True,
        "logprobs": 0,  # of the chosen token alone
        "detokenize": False,
        "extra_args": {"kv_transfer_params": dict(tiers)} if tiers else None,
    }


def tier_parameters(origin: Origin | None, salt: str | None, *, shared: bool) -> dict[str, Any]:
    """`kv_transfer_params`: what the prompt is made of, and how much of its beginning may leave the GPU at all.

    Stable segments only (repository and file parts) go down: what changes with each key would fill a tier with what nobody
    asks for again.

    Args:
        shared: the tenant opted in to the fleet's tier.
    """
    if origin is None or not origin.placed:
        return {"max_offload_tokens": 0}
    stable = 0
    for one in origin.placed:
        if one.segment.scope not in _STABLE:
            break
        stable = one.end
    placed = tuple(
        Placed(one.start, one.end, source.document, source.version, source.start, source.end)
        for one in origin.placed
        if (source := one.segment.source).document and one.start < stable
    )
    namespace = tier_namespace(salt) if salt else ""
    return {"max_offload_tokens": stable, **to_parameters(Placement(namespace, placed, shared and bool(namespace)))}


def without_end(token_ids: Sequence[int], finish: str | None, end_token_ids: frozenset[int]) -> tuple[int, ...]:
    """Tokens of an output; vLLM delivers the token that ended it, the port does not."""
    if finish == "stop" and token_ids and token_ids[-1] in end_token_ids:
        return tuple(token_ids[:-1])
    return tuple(token_ids)


def logprobs_of(token_ids: Sequence[int], rows: Sequence[Mapping[int, Any]] | None) -> tuple[float, ...]:
    """The log-probability of each token out of vLLM's rows (token → Logprob); empty where it gave none."""
    if rows is None or len(rows) < len(token_ids):
        return ()
    return tuple(float(row[token].logprob) for token, row in zip(token_ids, rows, strict=False))
