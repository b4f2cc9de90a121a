"""Where prompts of several authors are found: their typed commits, in turns, through caches like the tiers', and of some what vLLM counts.

Each author types commits of their own, in one of the repositories. A device's cache holds less than they need together, or enough; the host's holds
enough, and the third tier is never full. Down go stable parts alone, as the engine is told. What an exact prefix finds follows from the prompts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import islice, product
from pathlib import Path
from typing import Any, Final, NamedTuple

from foretype_backend.engines.embedded.shadow_cache import BlockKeys, ShadowPrefixCache
from foretype_backend.engines.vllm.options import GIB, read_shape
from foretype_context.prompt.assemble import Assembler, PlanState
from foretype_context.prompt.profile import Profile
from foretype_context.prompt.segments import Scope
from foretype_context.prompt.templates import encode_prompt, grammar
from foretype_context.tokens.tokenizer import Tokenizer, load_tokenizer
from foretype_eval.replay.commits import commits_of
from foretype_eval.replay.edit_recording import Recording, load_recording
from foretype_models.artifacts import locate

from foretype_lab.fast_tier.asking import ClaimOptions, ask, started
from foretype_lab.fast_tier.tiers import by_tier, origin
from foretype_lab.prefill.asking_moments import moments_of
from foretype_lab.prefill.typed_commits import recording_of

AUTHORS: Final = 8
_COMMITS: Final = 6
_ASKED: Final = 150
_SUFFIXES: Final = (".py", ".rs", ".ts", ".go")
_STABLE: Final = frozenset({Scope.GLOBAL, Scope.REPOSITORY, Scope.FILE})
DEVICES_TOKENS: Final = (6_144, 16_384)
"""Too little for all of them at once, and enough."""
_HOST_TOKENS: Final = 16_384
SALTS: Final = ("nobody", "repository", "author")


class Sent(NamedTuple):
    """A prompt of an author; `stable_tokens` of its beginning may leave the device."""

    author: int
    repository: str
    document: str
    ids: Sequence[int]
    stable_tokens: int


async def measure(options: ClaimOptions) -> dict[str, Any]:
    """`shares` by block, device and salt; `recorded`, those of a recorded session alone; `asked`: what an engine counts of some turns.

    `samples` turns are asked, and what is expected of the same stands beside.

    Raises EngineUnavailableError, RepositoryError, RecordingError, ValueError: too few commits.
    """
    tokenizer = load_tokenizer(options.model / "tokenizer.json")
    sent = interleaved([one for one in options.repositories if one.is_dir()], tokenizer)
    recordings = [one for one in options.repositories if not one.is_dir()]
    alone = {one.name: list(_session(0, one.name, load_recording(one), tokenizer)) for one in recordings}
    cases = product(options.blocks, DEVICES_TOKENS, SALTS)
    return {
        "shares": [shares(sent, block, device, salt_of=salt) for block, device, salt in cases],
        "recorded": [
            {"recording": name, **shares(session, block, device, salt_of="nobody")}
            for (name, session), block, device in product(alone.items(), options.blocks, DEVICES_TOKENS)
        ],
        "asked": [await _asked(options, sent[: AUTHORS * options.samples], block) for block in options.blocks],
    }


async def _asked(options: ClaimOptions, sent: Sequence[Sent], block_tokens: int) -> dict[str, Any]:
    """Of an engine with the smaller device's cache and the host's, one request after the other."""
    wide = 2 * read_shape(options.model).kv_bytes / GIB  # in float32
    sizes = {"cache_gib": DEVICES_TOKENS[0] * wide, "host_tier_gib": _HOST_TOKENS * wide, "host_copies": True}
    async with started(options.model, context_tokens=4096, block_tokens=block_tokens, **sizes) as engine:
        before, cached = by_tier(), 0
        for number, one in enumerate(sent):
            known = origin(one.stable_tokens, len(one.ids), one.document)
            cached += (await ask(engine, f"a{number}", list(one.ids), origin=known)).cached_tokens
        after = by_tier()
    total = sum(len(one.ids) for one in sent)
    return {
        "requests": len(sent),
        "cached": round(cached / total, 4),
        "by_tier": {tier: round((count - before.get(tier, 0)) / total, 4) for tier, count in after.items()},
        "expected": shares(sent, block_tokens, DEVICES_TOKENS[0], salt_of="nobody"),
    }


def interleaved(repositories: Sequence[Path], tokenizer: Tokenizer) -> list[Sent]:
    """The authors' prompts, one of each in turn. Raises RepositoryError, RecordingError, ValueError: too few commits."""
    sessions: list[Iterator[Sent]] = []
    for author in range(AUTHORS):
        repository = repositories[author % len(repositories)]
        turn = author // len(repositories)
        commits = commits_of(repository, _COMMITS * (turn + 1) + 1, suffixes=_SUFFIXES)
        if len(commits) <= _COMMITS * (turn + 1):
            raise ValueError(f"{repository} has {len(commits)} commits of {', '.join(_SUFFIXES)}; more are needed")
        spread = f"{commits[_COMMITS * (turn + 1)]}..{commits[_COMMITS * turn]}"
        typed = recording_of(repository, spread, suffixes=_SUFFIXES, seed=author)
        sessions.append(islice(_session(author, str(repository), typed, tokenizer), _ASKED))
    every = [list(session) for session in sessions]
    return [sent for turn in zip(*every, strict=False) for sent in turn]


def _session(author: int, repository: str, recording: Recording, tokenizer: Tokenizer) -> Iterator[Sent]:
    spoken = grammar(locate().grammar)
    profile = Profile(model="", grammar=spoken.id, tokenizer_digest=tokenizer.digest, layout=spoken.layout())
    assembler, state = Assembler(tokenizer, profile, timer=lambda: 0.0), PlanState.empty()
    for moment in moments_of(recording):
        plan, state = assembler.plan(state, moment.snapshot, moment.offset, now=moment.time_s)
        encoded = encode_prompt(tokenizer, spoken, [placed.segment for placed in plan.segments])
        stable = 0
        for placed, (_, end) in zip(plan.segments, encoded.ranges, strict=True):
            if placed.segment.scope not in _STABLE:
                break
            stable = end
        yield Sent(author, repository, moment.snapshot.uri, encoded.ids, stable)


def shares(sent: Sequence[Sent], block_tokens: int, device_tokens: int, *, salt_of: str) -> dict[str, Any]:
    """Shares of prompt tokens by tier; `retired` are blocks of an author's prompt for a document that the next one has no more.

    Args:
        salt_of: who shares a cache: `nobody`, `repository` (as the gateway salts one tenant's) or `author` (each a tenant).
    """
    device = ShadowPrefixCache(device_tokens // block_tokens, block_tokens)
    host = ShadowPrefixCache(_HOST_TOKENS // block_tokens, block_tokens)
    third = ShadowPrefixCache(sys.maxsize, block_tokens)
    found: dict[str, int] = {"device": 0, "host": 0, "redis": 0, "computed": 0}
    last: dict[tuple[int, str], BlockKeys] = {}
    retired = 0
    for one in sent:
        salt = {"nobody": "", "repository": one.repository, "author": str(one.author)}[salt_of]
        keys, count = device.keys(one.ids, salt=salt), len(one.ids)
        stable = keys[: one.stable_tokens // block_tokens]
        reach = device.cached_tokens(keys, count)
        found["device"] += reach
        for name, tier in (("host", host), ("redis", third)):
            further = max(reach, tier.cached_tokens(stable, count))
            found[name] += further - reach
            reach = further
            tier.touch(stable)
        found["computed"] += count - reach
        device.touch(keys)
        before = last.get((one.author, one.document), ())
        retired += len(set(before) - set(keys))
        last[one.author, one.document] = keys
    total = sum(found.values())
    return {
        "block_tokens": block_tokens,
        "device_tokens": device_tokens,
        "salt_of": salt_of,
        "prompt_tokens": total,
        "retired_blocks": retired,
        **{tier: round(count / total, 4) for tier, count in found.items()},
    }
