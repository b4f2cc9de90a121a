"""Where a prompt comes from, in terms of what its cache is kept apart by."""

from __future__ import annotations

import msgspec
from foretype_context.prompt.segments import PlacedSegment


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Whose prompt it is and what it is made of: what routing and cache tiers go by. Engines need none of it to answer.

    Attributes:
        repository: BLAKE2b-128 of the root commit in hexadecimal, as clients name it; "" where it is not known.
        owner: who does not share the cache of the repository; "" for who does.
        developer: who stays with one revision of the model while a roll-out lasts; the session where nobody is named.
        document: the document that the cursor is in; "" for stateless clients.
        placed: the prompt's segments with their token ranges, in prompt order.
    """

    tenant: str = ""
    repository: str = ""
    owner: str = ""
    developer: str = ""
    session: str = ""
    document: str = ""
    language: str = ""
    placed: tuple[PlacedSegment, ...] = ()
