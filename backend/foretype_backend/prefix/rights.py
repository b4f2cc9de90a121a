"""Who shares the cache of a repository: teams with a right to it. Pure.

A repository without rights is its whole tenant's. A user without a right to one gets a cache of their own, under a salt
of their own: neither the time nor the count of cached tokens of an answer tells them of the others' text, nor the
others of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple


def _unknown(_tenant: str, _user: str) -> str | None:
    return None


class CacheRights(NamedTuple):
    """As of one version of the identity store.

    Attributes:
        teams: by tenant and repository, where there are rights; nobody shares one with no team.
        team_of: the team of a user, "" for none; None of a user whom the store does not know.
    """

    teams: Mapping[tuple[str, str], frozenset[str]] = {}
    team_of: Callable[[str, str], str | None] = _unknown

    def owner(self, tenant: str, repository: str, *, team: str, user: str, credential: str) -> str:
        """Whose own cache a prompt goes to; "" for the one that is shared.

        Where a tenant has rights, a prompt that names no repository may be of any: it is shared with nobody.

        Args:
            team: as the credential says; counts for users whom the store does not know.
        """
        allowed = self.teams.get((tenant, repository))
        if allowed is None and (repository or not any(of == tenant for of, _ in self.teams)):
            return ""
        known = self.team_of(tenant, user) if user else None
        now = team if known is None else known
        if allowed is not None and now and now in allowed:
            return ""
        return f"user {user}" if user else f"credential {credential}"

    def of_tenant(self, tenant: str) -> dict[str, list[str]]:
        """The teams of each repository with rights."""
        return {repository: sorted(teams) for (of, repository), teams in sorted(self.teams.items()) if of == tenant}
