"""How well the prompts of each template hit the prefix cache, and whether a template changes what should stand still. Pure.

A history is a cached prefix only while its beginning does not change. A system prompt that carries a time, a counter or a
name makes every conversation a cold one; that is found here by its digest and reported with its hit rate, never by its text.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple

from foretype_context.text.strings import common_prefix

OTHER: Final = "other"
_NAME: Final = re.compile(r"[a-z0-9_-]{1,32}")
_MOST: Final = 32
_REMEMBERED: Final = 32
_MIN_REQUESTS: Final = 8
_CHANGING_SHARE: Final = 0.5


def template_name(given: str | None) -> str:
    """The label of a template as a client names it (header `x-foretype-template`); `other` where it is none."""
    return given if given is not None and _NAME.fullmatch(given) else OTHER


class TemplateReport(NamedTuple):
    """`hit_rate`: of prompt tokens that were not computed; None before any. `changing`: its beginning does not stand still.

    `stable_characters` is the longest beginning that all remembered system prompts share.
    """

    template: str
    requests: int
    hit_rate: float | None
    changing: bool
    stable_characters: int


@dataclass(slots=True)
class _Template:
    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    digests: deque[bytes] = field(default_factory=lambda: deque[bytes](maxlen=_REMEMBERED))
    beginning: str | None = None


class TemplateHitRates:
    """Args: texts stay in memory only as one common beginning per template, which shrinks to nothing if it changes."""

    def __init__(self) -> None:
        self._templates: OrderedDict[str, _Template] = OrderedDict()

    def asked(self, name: str, system: str) -> str:
        """A request of this template with this system prompt; returns the label that it is counted under."""
        if name not in self._templates and len(self._templates) >= _MOST:
            name = OTHER
        template = self._templates.setdefault(name, _Template())
        template.requests += 1
        template.digests.append(blake2b(system.encode("utf-8", "surrogatepass"), digest_size=8).digest())
        known = system if template.beginning is None else template.beginning
        template.beginning = system[: common_prefix(known, system)]
        return name

    def answered(self, name: str, prompt_tokens: int, cached_tokens: int) -> None:
        template = self._templates[name]
        template.prompt_tokens += prompt_tokens
        template.cached_tokens += cached_tokens

    def report(self) -> list[TemplateReport]:
        return [self._report(name, template) for name, template in self._templates.items()]

    @staticmethod
    def _report(name: str, template: _Template) -> TemplateReport:
        distinct, seen = len(set(template.digests)), len(template.digests)
        changing = seen >= _MIN_REQUESTS and distinct > _CHANGING_SHARE * seen
        hit_rate = template.cached_tokens / template.prompt_tokens if template.prompt_tokens else None
        return TemplateReport(name, template.requests, hit_rate, changing, len(template.beginning or ""))
