"""Which engine keys hold which token ranges of which documents: what lets a tier act on a retired range.

Engines have keys of their own, which the gateway neither knows nor computes. A request carries what it is made of in
`kv_transfer_params["foretype"]`; the tiers note for each key, by its end position in the prompt, the documents in it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from foretype_backend.errors import PlacementError

PARAMETER: Final = "foretype"
_ROW: Final = [int, int, str, int, int, int]


class Placed(NamedTuple):
    """Tokens `[start, end)` of a prompt were read from characters `[first, last)` of a document at a version."""

    start: int
    end: int
    document: str
    version: int
    first: int
    last: int


class Placement(NamedTuple):
    """What a prompt is made of.

    Attributes:
        namespace: opaque, unguessable and new after a purge; "" where it is not known whose the prompt is.
        shared: its blocks may leave the host: the tenant opted in to the tier that a fleet shares.
    """

    namespace: str
    placed: tuple[Placed, ...]
    shared: bool = False


def to_parameters(placement: Placement) -> dict[str, Any]:
    """As it travels in `kv_transfer_params`."""
    placed = [list(one) for one in placement.placed]
    return {PARAMETER: {"namespace": placement.namespace, "placed": placed, "shared": placement.shared}}


def placement_of(parameters: Mapping[str, Any] | None) -> Placement:
    """What came with a request; an empty placement where nothing did.

    Raises:
        PlacementError: it names the field.
    """
    value = (parameters or {}).get(PARAMETER)
    if value is None:
        return Placement("", ())
    try:
        namespace: Any = value["namespace"]
        shared: Any = value.get("shared", False)
        placed = tuple(Placed(*row) for row in value["placed"])
    except (KeyError, TypeError, AttributeError) as error:
        raise PlacementError(f"kv_transfer_params.{PARAMETER}: {error}") from error
    if not isinstance(namespace, str):
        raise PlacementError(f"kv_transfer_params.{PARAMETER}.namespace: a string is expected")
    if not isinstance(shared, bool) or (shared and not namespace):
        raise PlacementError(
            f"kv_transfer_params.{PARAMETER}.shared: true or false is expected, and true needs a namespace"
        )
    for row in placed:
        if [type(field) for field in row] != _ROW:
            raise PlacementError(
                f"kv_transfer_params.{PARAMETER}.placed: numbers and a document are expected, not {row!r}"
            )
    return Placement(namespace, placed, shared)


class SpanIndex:
    """Keys by document, bounded; the least recently noted key leaves first.

    Args:
        keys_max: keys remembered.
    """

    def __init__(self, keys_max: int = 262_144) -> None:
        if keys_max < 1:
            raise ValueError(f"keys_max must be at least 1, not {keys_max}")
        self._keys_max = keys_max
        self._documents: OrderedDict[bytes, tuple[tuple[str, str, int], ...]] = (
            OrderedDict()
        )  # key → (namespace, document, last)
        self._keys: dict[
            tuple[str, str], dict[bytes, int]
        ] = {}  # (namespace, document) → key → greatest character in it

    def __len__(self) -> int:
        return len(self._documents)

    def note(self, placement: Placement, ends: Iterable[tuple[bytes, int]], chunk_tokens: int) -> None:
        """Keys of a prompt, each with the position of its end, in tokens."""
        for key, end in ends:
            found = tuple(
                (placement.namespace, one.document, one.last)
                for one in placement.placed
                if one.document and one.start < end and one.end > end - chunk_tokens
            )
            self.forget([key])
            if not found:
                continue
            self._documents[key] = found
            for namespace, document, last in found:
                self._keys.setdefault((namespace, document), {})[key] = last
        while len(self._documents) > self._keys_max:
            self.forget([next(iter(self._documents))])

    def at(self, namespace: str, document: str, first: int = 0) -> list[bytes]:
        """Keys that hold characters of a document from `first` on, as they were noted."""
        return [key for key, last in self._keys.get((namespace, document), {}).items() if last > first]

    def forget(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            for namespace, document, _ in self._documents.pop(key, ()):
                held = self._keys.get((namespace, document))
                if held is not None:
                    held.pop(key, None)
                    if not held:
                        del self._keys[namespace, document]

    def forget_namespace(self, namespace: str) -> list[bytes]:
        """All keys noted under a namespace; they are forgotten."""
        keys = [key for (owner, _), held in self._keys.items() if owner == namespace for key in held]
        self.forget(keys)
        return keys
