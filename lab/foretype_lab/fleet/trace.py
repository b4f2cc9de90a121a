"""A trace of many developers: real commits typed by simulated people, each prompt built by the real assembler.

A commit is typed by one developer, in a tree where the commit before it is checked out, so colleagues share what stands in the same
files, and the repository part where their commits have it alike, and nothing of what they type. The same developers work for several
tenants, whose salts keep their caches apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from foretype_backend.engines.embedded.shadow_cache import block_keys
from foretype_backend.prefix.chain import Chain, blocks_of
from foretype_backend.prefix.salt import Namespace
from foretype_client.sources.committed import GitHead
from foretype_context.prompt.assemble import Assembler
from foretype_context.prompt.plan import PlanState
from foretype_context.prompt.profile import Profile
from foretype_context.prompt.repository import RepositorySource
from foretype_context.prompt.templates import encode_prompt, grammar
from foretype_context.tokens.tokenizer import Tokenizer
from foretype_eval.errors import RecordingError
from foretype_eval.replay.commits import commits_of

from foretype_lab.prefill.asking_moments import moments_of
from foretype_lab.prefill.typed_commits import record_commits

__all__ = ["Call", "Team", "record", "spread"]

_STAGGER_S: Final = 900.0
"""People begin within a quarter of an hour of each other."""


class Call(NamedTuple):
    """One request: when, whose, and its blocks. `mark` stands for the salt: it goes in front of every key."""

    time_s: float
    namespace: Namespace
    session: str
    document: str
    prompt_tokens: int
    unsalted: Chain
    mark: bytes = b""

    def keys(self) -> list[bytes]:
        return [self.mark + block.key for block in self.unsalted]

    def chain(self) -> Chain:
        return tuple(block._replace(key=self.mark + block.key) for block in self.unsalted)


class Team(NamedTuple):
    """A repository and how many developers type its newest commits."""

    repo: Path
    developers: int
    commits: int


def record(
    teams: Sequence[Team],
    tokenizer: Tokenizer,
    profile: Profile,
    *,
    block_tokens: int,
    requests_max: int = 300,
    seed: int = 0,
    progress: Callable[[str, int, int], None] = lambda _step, _done, _total: None,
) -> list[Call]:
    """Types the commits of each team, one after the other a developer, and returns the requests in order of time.

    Args:
        requests_max: of each developer; the rest of the commit is left out.

    Raises:
        RepositoryError: not a repository, or too few commits.
    """
    calls: list[Call] = []
    for team in teams:
        commits = commits_of(team.repo, team.commits, suffixes=(".py",))
        for developer in range(min(team.developers, len(commits))):
            progress(team.repo.name, developer, team.developers)
            shift = Random(f"{seed}/{team.repo}/{developer}").uniform(0, _STAGGER_S)
            calls += _typed(
                team.repo,
                [commits[at] for at in range(developer, len(commits), team.developers)],
                f"{team.repo.name}-{developer}",
                tokenizer,
                profile,
                block_tokens=block_tokens,
                shift=shift,
                requests_max=requests_max,
                seed=seed,
            )
    return sorted(calls, key=lambda call: call.time_s)


def _typed(
    repo: Path,
    commits: Sequence[str],
    session: str,
    tokenizer: Tokenizer,
    profile: Profile,
    *,
    block_tokens: int,
    shift: float,
    requests_max: int,
    seed: int,
) -> Iterator[Call]:
    assembler = Assembler(tokenizer, profile, timer=lambda: 0.0)
    spoken = grammar(profile.grammar)
    namespace = Namespace("tenant", repo.name)
    state = PlanState.empty()
    left = requests_max
    for commit in reversed(commits):
        committed = RepositorySource(GitHead(repo, globs=(), clock=lambda: 0.0, revision=f"{commit}~1"))
        try:
            recording = record_commits(repo, f"{commit}~1..{commit}", seed=seed)
        except RecordingError:  # it only takes lines away: nothing is typed
            continue
        for moment in moments_of(recording, after_deletions=False, snippets=True):
            part = committed.snippets(moment.snapshot, moment.offset, limit=1)
            snippets = [*part, *moment.snippets]
            plan, state = assembler.plan(
                state, moment.snapshot, moment.offset, snippets=snippets, now=shift + moment.time_s
            )
            ids = encode_prompt(tokenizer, spoken, [placed.segment for placed in plan.segments]).ids
            keys = block_keys(ids, block_tokens, salt=repo.name)
            chain = blocks_of(keys, plan.segments, block_tokens)
            yield Call(shift + moment.time_s, namespace, session, moment.snapshot.uri, len(ids), chain)
            left -= 1
            if not left:
                return


def spread(calls: Sequence[Call], tenants: int, *, seed: int = 0) -> list[Call]:
    """The same work for several tenants, each at its own hour: other salts, so that nothing is shared between them."""
    result: list[Call] = []
    for tenant in range(tenants):
        shift = Random(f"{seed}/{tenant}").uniform(0, _STAGGER_S)
        mark = tenant.to_bytes(4, "big")
        for call in calls:
            namespace = Namespace(f"tenant-{tenant}", call.namespace.scope)
            session = f"{tenant}/{call.session}"
            result.append(call._replace(time_s=call.time_s + shift, namespace=namespace, session=session, mark=mark))
    return sorted(result, key=lambda call: call.time_s)
