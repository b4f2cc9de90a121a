"""The next edit of one document: evidence from its bursts, the places where it applies, one of them at a time. Pure, with injected time.

Evidence in this order: a declaration that was renamed and followed at one place by hand, then parameters that changed, then a declaration
that was renamed, then two edits that are alike. Silent while somebody types, after an undo, where a file does not parse better for it, in comments and strings unless an example
was, and where it was refused before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from tree_sitter import Node

from foretype_context.edits.bursts import Burst, Bursts
from foretype_context.edits.elsewhere import Elsewhere, Site
from foretype_context.edits.evidence import Evidence, NextEdit, named
from foretype_context.edits.examples import CommonChange, Examples, alike_elsewhere, places_alike, same_elsewhere
from foretype_context.edits.names import is_at_odds
from foretype_context.edits.offsets import byte_of
from foretype_context.edits.redefined import Touched, is_redefined
from foretype_context.edits.rename_sites import (
    Rename,
    elsewhere_of,
    is_free,
    is_seen_elsewhere,
    rename_in,
    sites_of,
)
from foretype_context.edits.signatures import Signature, Signatures, signature_in
from foretype_context.syntax.document import Edit

__all__ = ["SETTLED_S", "Evidence", "NextEdit", "NextEditRules"]

SETTLED_S: Final = 0.4
"""Since the last key: a name that is being typed is no name yet."""
_DECLARATIONS: Final = 8
"""Renames, and as many signatures, that are followed at the same time."""
_OF_EXAMPLES: Final = (Evidence.LIKE_EDITS, Evidence.ONE_EXAMPLE)
_REFUSED: Final = 256
_TOUCHED: Final = 256
_PARSES: Final = 8
"""Places that are tried before the answer is silence: each costs a parse."""


class NextEditRules:
    """The rules of next edits, applied to one document.

    Args:
        language: LSP language id; one without syntax gets nothing.
    """

    def __init__(self, language: str, text: str) -> None:
        self._language = language
        self._bursts = Bursts(text)
        self._renames: list[Rename] = []  # the last one first, as with all of these
        self._free: list[Rename] = []  # those that are known to hide nothing
        self._confirmed = deque[tuple[str, str]](maxlen=_DECLARATIONS)  # those that were followed by hand
        self._signatures: list[Signature] = []
        self._over = deque[tuple[str, str]](maxlen=_REFUSED)  # declarations one place of which was refused
        self._examples = Examples(language)
        self._touched = deque[Touched](maxlen=_TOUCHED)
        self._refused = deque[tuple[str, str]](maxlen=_REFUSED)
        self._last_s = float("-inf")
        self._offered: NextEdit | None = None
        self._offered_of: tuple[str, str] | None = None
        self._is_example = True  # what the open burst is

    def changed(
        self, edits: Sequence[Edit], after: str, now_s: float, *, root: Node | None, accepted: bool = False
    ) -> None:
        """The text became `after`.

        Args:
            root: of the text before, to know where in it an example stood; None where there is none.
            accepted: it is a suggestion that was taken, a next edit among them.
        """
        ended = self._bursts.changed(edits, after, now_s, accepted=accepted)
        self._last_s = now_s
        if ended is not None:
            self._learn(ended, root)
        if accepted:  # what was offered for a declaration, by a model or of another file is no example of anything else
            own = self._offered
            self._is_example = own is not None and [own.edit] == list(edits) and own.evidence in _OF_EXAMPLES
        elif ended is not None or self._bursts.open is None:
            self._is_example = True
        for edit in edits:
            self._shift(edit, now_s)
            self._examples.shift(edit)
        if self._bursts.undone:  # nothing that led here is wanted again
            self._renames.clear()
            self._confirmed.clear()
            self._signatures.clear()
            self._examples.clear()

    def refused(self, text: str, edit: Edit) -> None:
        """The developer did not want this: not here again, nor where the same line stands. What was declared is followed no more.

        Args:
            text: of the file that it is of, this document or another.
        """
        self._refused.append(named(text, edit))
        if self._offered is None or edit != self._offered.edit:  # of another file
            self._over.append((text[edit.start : edit.end], edit.text))
        elif self._offered_of is not None:
            self._over.append(self._offered_of)

    def next(
        self, text: str, root: Node, source: bytes, cursor: int, now_s: float, parses: Callable[[Edit], bool]
    ) -> NextEdit | None:
        """What is likely wanted next, the nearest place below the cursor first, then above.

        Args:
            root, source: of `text`, as it is now.
            parses: whether the text has no more errors with this edit than without. Asked of few places.
        """
        if now_s - self._last_s < SETTLED_S:
            return None
        tried = 0
        for evidence, declared, found in self._found(root, source, text):
            for site in found:
                if site.jump_only and site.edit.start == cursor:
                    self._refused.append(named(text, site.edit))  # who is there has seen it
            sites = [site for site in found if named(text, site.edit) not in self._refused]
            if evidence is Evidence.LIKE_EDITS and self._was_passed(sites, root, text):
                continue
            below = [site for site in sites if site.edit.start >= cursor]
            for site in below + [site for site in reversed(sites) if site.edit.start < cursor]:
                if evidence in _OF_EXAMPLES and is_at_odds(
                    (byte_of(text, site.edit.start), byte_of(text, site.edit.end), site.edit.text),
                    root,
                    source,
                    self._language,
                ):
                    continue
                if site.jump_only or (tried < _PARSES and parses(site.edit)):
                    self._offered_of = declared
                    self._offered = NextEdit(site.edit, evidence, len(sites) - 1, site.jump_only)
                    return self._offered
                tried += 1
        return None

    def elsewhere(self, path: str, text: str, root: Node, source: bytes, now_s: float) -> Elsewhere | None:
        """What the surest evidence says of other files. To be asked when :meth:`next` has nothing more to say of this one.

        Args:
            path: of this document, relative to the repository, with slashes.
            root, source: of `text`, as it is now.
        """
        if now_s - self._last_s < SETTLED_S:
            return None
        renames = list(self._renames_of(root, source, text))
        seen = [one for one in renames if is_seen_elsewhere(one, root, source, text, self._language)]

        def of(rename: Rename, evidence: Evidence) -> Elsewhere:
            sites = elsewhere_of(rename, root, source, text, self._language, path)
            return Elsewhere(evidence, rename.old, sites, self._refused)

        for rename in seen:
            if rename[:2] in self._confirmed:
                return of(rename, Evidence.RENAME)
        for of_names in (False, True):
            for signature in self._signatures_of(root, source, text, of_names=of_names):
                if signature.is_seen_elsewhere:
                    sites = partial(signature.elsewhere, path)
                    return Elsewhere(Evidence.SIGNATURE, signature.token, sites, self._refused)
            if seen:
                return of(seen[0], Evidence.DECLARATION)
        template = self._template(root, source, text)
        if template is not None:
            sites = partial(alike_elsewhere, template, self._language)
            return Elsewhere(Evidence.LIKE_EDITS, template.word, sites, self._refused)
        return None

    def _found(
        self, root: Node, source: bytes, text: str
    ) -> Iterator[tuple[Evidence, tuple[str, str] | None, list[Site]]]:
        """The places of each evidence, the surest first, each in order of the text, with the declaration that they follow."""
        renames = list(self._renames_of(root, source, text))

        def sites(rename: Rename) -> list[Site]:
            return [Site(edit) for edit in sites_of(rename, root, source, text, self._language)]

        for rename in renames:
            if rename[:2] in self._confirmed:
                yield Evidence.RENAME, rename[:2], sites(rename)
        told = set[str]()
        for signature in self._signatures_of(root, source, text, of_names=False):
            told.add(signature.token)
            yield Evidence.SIGNATURE, ("", signature.token), signature.sites(root, source, text, self._spans())
        for rename in renames:
            if rename[:2] not in self._confirmed:
                yield Evidence.DECLARATION, rename[:2], sites(rename)
        for signature in self._signatures_of(root, source, text):
            if signature.token not in told:
                yield Evidence.SIGNATURE, ("", signature.token), signature.sites(root, source, text, self._spans())
        template = self._template(root, source, text)
        places = [] if template is None else places_alike(template, self._language, root, text)
        yield Evidence.LIKE_EDITS, None, places
        same = self._examples.same(self._open_example(), root, text)
        if same is not None and signature_in(same[1], root, source, self._language) is None:
            yield Evidence.ONE_EXAMPLE, None, same_elsewhere(*same, self._language, root, text)

    def _template(self, root: Node, source: bytes, text: str) -> CommonChange | None:
        """What the last edits have in common, except calls of what they have a better reason for."""
        template = self._examples.template(self._open_example(), root, text)
        calls = {signature.token for signature in self._signatures_of(root, source, text)}
        return None if template is None or calls & set(template.template.before) else template

    def _open_example(self) -> Burst | None:
        burst = self._bursts.open
        return burst if burst is not None and self._is_example and self._is_new(burst) else None

    def _was_passed(self, sites: Sequence[Site], root: Node, text: str) -> bool:
        """Whether somebody changed a place above and one below, and left this one as it is."""
        template = self._examples.template(self._open_example(), root, text)
        return template is not None and any(
            template.between[0] < site.edit.start < template.between[1] for site in sites
        )

    def _is_new(self, burst: Burst) -> bool:
        """Whether it does something else than a rename that is followed already."""
        renamed = rename_in(burst)
        return renamed is None or all(renamed[:2] != known[:2] for known in self._free)

    def _renames_of(self, root: Node, source: bytes, text: str) -> Iterator[Rename]:
        """The renames that are to be followed, whose name is still there and hides nothing."""
        burst = self._bursts.open
        now = burst and rename_in(burst)
        if now:
            self._confirm(now)
        for rename in [now, *self._renames] if now and now not in self._renames else list(self._renames):
            if text[rename.at : rename.at + len(rename.new)] != rename.new or rename[:2] in self._over:
                continue
            if is_redefined(rename.at, root, source, text, self._touched, {one.new for one in self._free}):
                continue
            if rename not in self._free:  # asked once: what was renamed since then has the new name too
                if not is_free(rename, root, source, text, self._language, self._spans()):
                    continue
                self._free.append(rename)
            yield rename

    def _signatures_of(self, root: Node, source: bytes, text: str, *, of_names: bool = True) -> Iterator[Signatures]:
        """Those that are to be followed.

        Args:
            of_names: a parameter that got another name just now, too: calls may say it.
        """
        burst = self._bursts.open
        if burst is not None and (of_names or rename_in(burst) is None):
            self._add(signature_in(burst, root, source, self._language))
        for signature in list(self._signatures):
            found = Signatures.of(signature, root, source, text, self._language)
            if found is not None and ("", found.token) not in self._over:
                yield found

    def _learn(self, burst: Burst, root: Node | None) -> None:
        renamed = rename_in(burst)
        if renamed is not None:
            self._confirm(renamed)
        if renamed is not None and renamed not in self._renames:
            free = renamed in self._free
            if root is not None and not free:
                source = burst.after.encode("utf-8", "surrogatepass")
                free = is_free(renamed, root, source, burst.after, self._language, self._spans())
                self._free += [renamed] if free else []
            if free or not self._knows(renamed):
                self._renames = [renamed, *self._renames][:_DECLARATIONS]
        if root is not None and renamed is None:
            source = burst.after.encode("utf-8", "surrogatepass")
            self._add(signature_in(burst, root, source, self._language))
        if self._is_example and self._is_new(burst):
            self._examples.learn(burst, root)

    def _knows(self, renamed: Rename) -> bool:
        """Who changes a place by hand to what its declaration is called renames nothing else, but where it is declared once more."""
        return any(renamed[:2] == known[:2] for known in self._renames)

    def _confirm(self, renamed: Rename) -> None:
        """Of a second place, whichever of the two is the declaration."""
        known = any(renamed[:2] == one[:2] and renamed.at != one.at for one in self._renames)
        if known and renamed[:2] not in self._confirmed:
            self._confirmed.append(renamed[:2])

    def _add(self, signature: Signature | None) -> None:
        if signature is not None and all(signature.at != known.at for known in self._signatures):
            self._signatures = [signature, *self._signatures][:_DECLARATIONS]

    def _spans(self) -> list[tuple[int, int]]:
        return [(one.start, one.end) for one in self._touched]

    def _shift(self, edit: Edit, now_s: float) -> None:
        """Everything that is remembered by its place goes where the edit moves it."""
        start, end, text = edit
        grown = edit.growth

        def moved(at: int, length: int) -> int | None:
            return None if start < at + length and end > at else at + grown if end <= at else at

        for kept in (self._renames, self._free):
            kept[:] = [one._replace(at=at) for one in kept if (at := moved(one.at, len(one.new))) is not None]
        signatures = self._signatures
        signatures[:] = [one._replace(at=at) for one in signatures if (at := moved(one.at, 1)) is not None]
        for index, (first, last, at_s) in enumerate(self._touched):
            if end <= first:
                self._touched[index] = Touched(first + grown, last + grown, at_s)
            elif start < last:
                self._touched[index] = Touched(min(first, start), max(last, end) + grown, now_s)
        last = self._touched[-1] if self._touched else None
        if last is None or start + len(text) < last.start or start > last.end:
            self._touched.append(Touched(start, start + len(text), now_s))
        else:
            self._touched[-1] = Touched(min(start, last.start), max(start + len(text), last.end), now_s)
