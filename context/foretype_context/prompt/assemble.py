"""Prompt assembly: a pure function of what was shown before and what is there now.

`plan(state, snapshot, offset)` gives a plan and the state to commit when that plan is sent. Token counts come from a cache of
pieces, so that assembly costs what changed; the budget is exact, special tokens included.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from foretype_context.errors import GrammarError, ProfileError, UnknownControlError
from foretype_context.grammars.grammar import announced
from foretype_context.prompt.layouts import IDLE_SECONDS, LAYOUTS, FilePart, LayoutRequest
from foretype_context.prompt.plan import Dropped, FileMemory, FrozenSpan, Plan, PlanState
from foretype_context.prompt.profile import Opened, Profile, Stop
from foretype_context.prompt.segments import Kind, PlacedSegment, Scope, Segment, Source
from foretype_context.prompt.select import Selection, select
from foretype_context.prompt.sources import Snippet
from foretype_context.prompt.strategy import strategy_named
from foretype_context.prompt.templates import Grammar, count_prompt
from foretype_context.prompt.windows import View, last_tokens
from foretype_context.syntax.blocks import SuggestionKind, opened_indent, stop_indent, suggestion_kind
from foretype_context.syntax.document import Snapshot
from foretype_context.syntax.languages import language_spec
from foretype_context.tokens.tokenizer import Tokenizer

__all__ = ["Assembler", "Dropped", "FrozenSpan", "Plan", "PlanState", "SuggestionKind"]

MIN_PROMPT_TOKENS: Final = 64
_CHARS_PER_TOKEN: Final = 16
_KNOWN_SNIPPETS: Final = 256


class Assembler:
    """Builds prompts for one profile.

    Args:
        tokenizer: of the profile's model.
        profile: as the gateway sent it.
        repository: name shown to the model, or empty.
        timer: monotonic seconds, for timings and the time budget.

    Raises:
        ProfileError: grammar, layout and budgets do not go together, or the tokenizer is not this grammar's.
        UnknownGrammarError: the gateway describes none, and none of its name ships.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        profile: Profile,
        *,
        repository: str = "",
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.tokenizer = tokenizer
        self.profile = profile
        self.repository = repository
        self._timer = timer
        try:
            self._grammar = announced(profile.grammar, profile.grammar_rules).for_vocabulary(tokenizer.controls())
        except GrammarError as error:
            raise ProfileError(f"grammar_rules: {error}") from error
        except UnknownControlError as error:
            raise ProfileError(f"grammar: {profile.grammar} does not fit the tokenizer: {error}") from error
        self.strategy, unknown = strategy_named(profile.strategy, profile.strategy_rules)
        self._notes = (unknown,) if unknown else ()
        if profile.layout not in self._grammar.layouts:
            raise ProfileError(
                f"layout: {profile.layout!r} is not one of {', '.join(self._grammar.layouts)} of {profile.grammar}"
            )
        if profile.layout not in LAYOUTS:
            raise ProfileError(f"layout: {profile.layout!r} is not known here; update foretype on this side")
        for token in sorted(self._grammar.needed()):
            try:
                tokenizer.control(token)
            except UnknownControlError as error:
                raise ProfileError(f"grammar: {profile.grammar} does not fit the tokenizer: {error}") from error
        generated = max(profile.budgets.line_tokens, profile.budgets.block_tokens)
        self.budget_tokens = min(profile.budgets.prompt_tokens, profile.context_limit_tokens - generated)
        if self.budget_tokens < MIN_PROMPT_TOKENS:
            raise ProfileError(f"budgets.prompt_tokens: {self.budget_tokens} is below {MIN_PROMPT_TOKENS}")
        self._bare_tokens = self._tokens([])
        # The same snippets come with every key.
        self._cost = lru_cache(maxsize=_KNOWN_SNIPPETS)(self._cost_of)
        self._trimmed = lru_cache(maxsize=_KNOWN_SNIPPETS)(self._trimmed_of)

    def for_blocks(self) -> Assembler:
        """Of whole blocks, whose prompts may be larger."""
        budgets = self.profile.block_budgets
        if budgets is None:
            return self
        takes = max(
            self.profile.context_limit_tokens, budgets.prompt_tokens + max(budgets.line_tokens, budgets.block_tokens)
        )
        larger = msgspec.structs.replace(self.profile, budgets=budgets, context_limit_tokens=takes)
        return Assembler(self.tokenizer, larger, repository=self.repository, timer=self._timer)

    @property
    def grammar(self) -> Grammar:
        return self._grammar

    def plan(
        self,
        state: PlanState,
        snapshot: Snapshot,
        offset: int,
        *,
        snippets: Sequence[Snippet] = (),
        block: bool | None = None,
        now: float,
    ) -> tuple[Plan, PlanState]:
        """Assembles the prompt for a cursor position.

        Args:
            state: what was shown before; commit the returned one when the plan is sent.
            offset: the cursor, in characters; clamped to the text.
            snippets: candidates from other files.
            block: overrules the syntax: several lines wanted, or not.
            now: monotonic seconds, for what depends on idleness.
        """
        began = self._timer()
        view = View.at(snapshot, offset)
        kind = suggestion_kind(snapshot, view.offset, block)
        syntax_done = self._timer()
        memory = state.files.get(snapshot.uri)
        selection = self._context(state, view, snippets, memory, now, began)
        context_done = self._timer()
        part, segments, dropped, ranges = self._fitted(view, memory, selection, now)
        placed = tuple(
            PlacedSegment(segment=segment, start=start, end=end)
            for segment, (start, end) in zip(segments, ranges, strict=True)
        )
        kept = tuple(segment for segment in segments if segment.kind is Kind.FILE)
        done = self._timer()
        budgets, is_block = self.profile.budgets, kind is SuggestionKind.BLOCK
        plan = Plan(
            segments=placed,
            prompt_tokens=ranges[-1][1] if ranges else 0,
            budget_tokens=self.budget_tokens,
            layout=self.profile.layout,
            kind=kind,
            stop=msgspec.structs.replace(self._stop(view, kind, may_open=block is None), repeats=part.healed),
            max_tokens=budgets.block_tokens if is_block else budgets.line_tokens,
            middle=part.middle.text,
            healed=part.healed,
            dropped=dropped,
            strategy=self.strategy.id,
            notes=self._notes,
            frozen_spans=part.frozen,
            timings_ms={
                "syntax": (syntax_done - began) * 1e3,
                "context": (context_done - syntax_done) * 1e3,
                "layout": (done - context_done) * 1e3,
                "total": (done - began) * 1e3,
            },
        )
        return plan, state.remembering(snapshot.uri, part.memory, kept)

    def _stop(self, view: View, kind: SuggestionKind, *, may_open: bool) -> Stop:
        rules, snapshot, strings = self.profile.stop, view.snapshot, list(self.profile.stop.strings)
        if kind is SuggestionKind.BLOCK:
            indent = stop_indent(snapshot, view.offset)
            return Stop(
                strings=strings,
                max_lines=rules.block_max_lines,
                min_indent=indent or None,
                least_chance=rules.least_chance,
            )
        opened = None
        if may_open and kind is SuggestionKind.LINE and rules.first_line_decides and rules.single_line_max_lines == 1:
            opened = self._opened(view)
        return Stop(
            strings=strings,
            max_lines=rules.single_line_max_lines,
            opened=opened,
            least_chance=rules.least_chance,
        )

    def _opened(self, view: View) -> Opened | None:
        indent = opened_indent(view.snapshot, view.offset)
        if indent is None:
            return None
        spec = language_spec(view.snapshot.language)
        return Opened(
            endings=list(spec.opens_block),
            comments=list(spec.comment_marks),
            max_lines=self.profile.stop.block_max_lines,
            max_tokens=self.profile.budgets.block_tokens,
            min_indent=indent or None,
        )

    def _context(
        self,
        state: PlanState,
        view: View,
        snippets: Sequence[Snippet],
        memory: FileMemory | None,
        now: float,
        began: float,
    ) -> Selection:
        deadline = began + self.profile.budgets.assembly_ms / 2e3
        limit = min(self.profile.budgets.context_tokens, int(self.budget_tokens * self.strategy.context_share))
        return select(
            snippets,
            state.context,
            view,
            self.strategy,
            limit_tokens=limit,
            cost=self._cost,
            trimmed=self._trimmed,
            idle=memory is not None and now - memory.planned_at >= IDLE_SECONDS,
            late=lambda: self._timer() > deadline,
        )

    def _fitted(
        self, view: View, memory: FileMemory | None, selection: Selection, now: float
    ) -> tuple[FilePart, list[Segment], tuple[Dropped, ...], list[tuple[int, int]]]:
        """Lays the file out in what the context leaves; context goes first where the two together do not fit."""
        context, dropped = list(selection.segments), list(selection.dropped)
        while True:
            head = self._head(view, context)
            part = self._laid_out(view, memory, self.budget_tokens - self._tokens(head), now)
            segments = self._ordered(head, part)
            ranges = count_prompt(self.tokenizer, self._grammar, segments)
            if ranges[-1][1] <= self.budget_tokens or not context:
                return part, segments, tuple(dropped), ranges
            last = context.pop()
            dropped.append(Dropped(last.kind, last.source, self._cost(last), "over the prompt budget"))

    def _laid_out(self, view: View, memory: FileMemory | None, tokens: int, now: float) -> FilePart:
        tokens -= 1 if self._grammar.tail else 0
        request = LayoutRequest(
            view=view,
            memory=memory,
            tokens=max(tokens, 0),
            suffix_tokens=min(self.profile.budgets.suffix_tokens, max(tokens, 0) // 3),
            tokenizer=self.tokenizer,
            grammar=self._grammar,
            strategy=self.strategy,
            now=now,
        )
        return LAYOUTS[self.profile.layout](request)

    def _head(self, view: View, context: Sequence[Segment]) -> list[Segment]:
        """What stands outside the file's text: repository, other files, the current file's path."""
        snapshot = view.snapshot
        head: list[Segment] = []
        if self.repository:
            name = Segment(kind=Kind.REPOSITORY, scope=Scope.REPOSITORY, source=Source(), text=self.repository)
            head.append(name)
        head += context
        if snapshot.path:
            # A path so long that it takes an eighth of the prompt is shown by its end.
            path = last_tokens(self.tokenizer, snapshot.path, self.budget_tokens // 8)
            source = Source(document=snapshot.uri, path=path)
            head.append(Segment(kind=Kind.PATH, scope=Scope.FILE, source=source, text=""))
        return head

    def _ordered(self, head: list[Segment], part: FilePart) -> list[Segment]:
        body = part.ordered(self._grammar)
        if not self._grammar.suffix_first:
            return [*head, *body]
        first = [one for one in body if one.kind in (Kind.SUFFIX, Kind.TAIL)]
        return [*first, *head, *(one for one in body if one.kind not in (Kind.SUFFIX, Kind.TAIL))]

    def _tokens(self, segments: Sequence[Segment]) -> int:
        """Tokens of a prompt made of `segments` and nothing else, all special tokens included."""
        middle = Segment(kind=Kind.MIDDLE, scope=Scope.SESSION, source=Source(), text="")
        return count_prompt(self.tokenizer, self._grammar, [*segments, middle])[-1][1]

    def _trimmed_of(self, text: str) -> str:
        """A snippet's text in whole lines within what a snippet may take."""
        limit, count = self.strategy.snippet_tokens, self.tokenizer.count
        if len(text) <= limit or count(text) <= limit:
            return text
        lines = text[: limit * _CHARS_PER_TOKEN].splitlines(keepends=True)
        low, high = 0, len(lines)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if count("".join(lines[:middle])) <= limit else (low, middle - 1)
        return "".join(lines[:low])

    def _cost_of(self, segment: Segment) -> int:
        return self._tokens([segment]) - self._bare_tokens
