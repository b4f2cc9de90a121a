"""The model profile: everything a client must know about the model behind the gateway, as data.

The server owns the model, so it owns the template, the budgets and the thresholds; the client follows. A profile is sent
after `hello` and again whenever it changes.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec

from foretype_context.edit_models.question import EditWindow
from foretype_context.prompt.strategy import Strategy
from foretype_context.text.openers import opens

KNOBS: Final = ("arms", "budgets", "debounce", "speculation", "strategy", "thresholds")
"""What a profile may change about a client of this version, beside its layout: an experiment takes only clients that know what its
variants change. `arms`: the client tells in its telemetry which experiment, variant and block a suggestion belongs to."""


class Service(StrEnum):
    """How much a loaded gateway serves, from everything to nothing; it takes one step at a time."""

    FULL = "full"
    NO_RETRIEVAL = "no_retrieval"
    SHORT_CONTEXT = "short_context"
    CACHE_ONLY = "cache_only"

    @property
    def asks(self) -> bool:
        """Whether clients may send this gateway requests for what is typed."""
        return self is not Service.CACHE_ONLY

    @classmethod
    def _missing_(cls, value: object) -> Service:
        """A step of another version of the gateway counts as CACHE_ONLY: no gateway is harmed by a client that sends no requests."""
        return cls.CACHE_ONLY


class Opened(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stop rules that hold once the first line of a text has turned out to open a block (`def f(self):`).

    Attributes:
        endings: the first line opens a block where it ends with one of these, white space and a comment behind it left out.
        comments: what a comment begins with.
        max_lines, min_indent: in place of those of the `Stop`.
        max_tokens: in place of the request's, which counts until the first line has ended.
    """

    endings: list[str]
    comments: list[str] = []
    max_lines: int
    max_tokens: int
    min_indent: int | None = None

    def by(self, first_line: str) -> bool:
        """Whether a whole first line opens a block."""
        return opens(first_line, self.endings, self.comments)


class Stop(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where one suggestion ends, as data; the gateway enforces it inside chunks and closes the engine stream early.

    Attributes:
        strings: generation ends before the first occurrence of any of these.
        max_lines: generation ends at the end of this many lines (the newline itself is not part of the text).
        min_indent: generation ends before the first later non-blank line indented by fewer columns.
        opened: what holds once the first line has opened a block; None where it may not.
        least_chance: generation ends before the token with which the chance of its line, by the model's own probabilities, falls
            below this; 0 for never.
        repeats: the text begins by repeating this (:mod:`foretype_context.prompt.healing`): the repetition is delivered, and counts for
            none of the rules above. Generation ends if the text begins otherwise.
    """

    strings: list[str] = []
    max_lines: int | None = None
    min_indent: int | None = None
    opened: Opened | None = None
    least_chance: float = 0.0
    repeats: str = ""


BLOCK_ANSWER_TOKENS: Final = 768
"""Most tokens to generate for a whole block that a user asks for."""


class Budgets(msgspec.Struct, frozen=True, kw_only=True):
    """Token budgets of a prompt and of a suggestion.

    Attributes:
        prompt_tokens: whole prompt, special tokens included.
        suffix_tokens: at most this much of the prompt from below the cursor.
        context_tokens: at most this much of the prompt from other files.
        line_tokens: generated at most for a single-line suggestion.
        block_tokens: generated at most for a multi-line suggestion.
        assembly_ms: time budget of assembly; beyond it, lowest-priority parts are dropped.
    """

    prompt_tokens: int = 2000
    suffix_tokens: int = 250
    context_tokens: int = 700
    line_tokens: int = 48
    block_tokens: int = 128
    assembly_ms: float = 10.0


class StopRules(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults from which the client builds the `Stop` of a request.

    Attributes:
        strings: every suggestion ends before these.
        single_line_max_lines: lines of a suggestion of one line.
        block_max_lines: lines of a suggestion of several.
        first_line_decides: a line that opens a block may be followed by that block, though the syntax at the cursor asked for
            one line.
        least_chance: A suggestion that nobody asked for ends where the chance of its line falls below this; 0 for never. Hardly any
            right line is less likely than that; lines that never end are.
    """

    strings: list[str] = []
    single_line_max_lines: int = 1
    block_max_lines: int = 12
    first_line_decides: bool = True
    least_chance: float = 0.001


_ANY_LOGPROB: Final = -100.0
_LEAST_LOG: Final = -50.0
_LEAST_LOG_MISS: Final = 1e-4
_LONG_CHARS: Final = 200
_LONG_TOKENS: Final = 20
"""Lines are hardly ever longer, and first lines of blocks."""


class MinMeanLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """Least mean token log-probability at which a suggestion is shown unasked, per kind; chosen on held-out data.

    With 0 nothing is shown unasked, since no text is certain: so a model that is right too seldom at every confidence answers only
    when the user asks.

    Attributes:
        mid_line, line, block: for a text that ends within a line, at the end of its line, or with a block.
    """

    mid_line: float = _ANY_LOGPROB
    line: float = _ANY_LOGPROB
    block: float = _ANY_LOGPROB

    @property
    def shows_everything(self) -> bool:
        """Whether every text is shown, however unsure."""
        return max(self.mid_line, self.line, self.block) <= _ANY_LOGPROB

    @property
    def shows_nothing(self) -> bool:
        """Whether no text of any kind is shown unasked."""
        return min(self.mid_line, self.line, self.block) >= 0


class LineChance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The chance that a line is what the user will write, by a logistic regression on held-out repositories, and what chance it needs.

    With the defaults the chance is the model's own probability.

    Attributes:
        least: Chance from which on a line is shown unasked, the local candidate's too; 0 shows any line, and above 0 no line of one
            or two characters is shown.
        bias, log_odds, log_characters: Weights of 1, of the log odds of the probability that the model gives the line and its end, and of the
            logarithm of its characters.
        went_on, in_comment: Added where the model went on to the next line rather than end, and where the line is in a comment.
    """

    least: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    bias: float = 0.0
    log_odds: float = 1.0
    log_characters: float = 0.0
    went_on: float = 0.0
    in_comment: float = 0.0

    def of(self, logprob: float, characters: int, *, went_on: bool, in_comment: bool) -> float:
        """The chance of a line of so many characters, 0 to 1; `logprob` is the sum over its tokens and its end."""
        sure = min(max(logprob, _LEAST_LOG), -_LEAST_LOG_MISS)
        odds = sure - math.log(-math.expm1(sure))
        sum_ = self.bias + self.log_odds * odds + self.log_characters * math.log(max(1, characters))
        return 1 / (1 + math.exp(-(sum_ + self.went_on * went_on + self.in_comment * in_comment)))

    @property
    def least_probability(self) -> float:
        """The model's probability of a line below which it is shown unasked nowhere; 0 where any is shown."""
        if self.least <= 0 or self.log_odds <= 0:
            return 0.0
        if self.least >= 1:
            return 1.0
        best = self.bias + max(self.log_characters, 0.0) * math.log(_LONG_CHARS)
        best += max(self.went_on, 0.0) + max(self.in_comment, 0.0)
        return 1 / (1 + math.exp(-(math.log(self.least / (1 - self.least)) - best) / self.log_odds))


class Profile(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="profile"):
    """What the gateway tells a client about its model.

    Attributes:
        model: name for people and logs.
        grammar: id of the grammar, e.g. `foretype-1`.
        grammar_rules: the grammar itself (:func:`foretype_context.grammars.grammar.described` takes it), so that a client needs no
            release to serve a family that is new to it. Untyped here: what is wrong with it must not void the message.
        tokenizer_digest: hex BLAKE2b-128 of the tokenizer file, served at `/v1/tokenizers/{digest}`.
        layout: prompt layout, e.g. `psm_line_last`.
        context_limit_tokens: the model's own context length.
        block_tokens: size of a prefix-cache block in the engine.
        line_chance: the chance that a line of this model is what the user will write, and the chance from which on it is shown unasked.
        local_min_confidence: probability of being right from which the client's local candidate is shown at once, without
            asking this model; low for a small model, near 1 for a good one.
        drop_broken: whether clients take away what adds an error of syntax to the file.
        strategy: name of the context strategy (:mod:`foretype_context.prompt.strategy`).
        experiment, variant, block: which experiment this profile is a part of, its arm, and the number of its block of time, by the
            gateway's clock; clients repeat them in telemetry.
        debounce_ms: in place of the client's own debounce; None leaves that to the client.
        speculative: whether the client asks ahead for what comes after a suggestion; None leaves that to the client.
        service: what a loaded gateway has to leave out; the budgets say the same in tokens.
        strategy_rules: the strategy itself, where clients may not know it by name.
        block_budgets: budgets of a whole block that a user asks for, where larger prompts are taken for it; None: those of suggestions.
        next_edit: the model that predicts next edits, and how it is asked; None where there is none, and nothing is asked.
    """

    model: str
    grammar: str
    tokenizer_digest: str
    grammar_rules: dict[str, Any] | None = None
    layout: str = "psm_line_last"
    budgets: Budgets = Budgets()
    stop: StopRules = StopRules()
    context_limit_tokens: int = 8192
    block_tokens: int = 32
    strategy: str = "default-1"
    strategy_rules: Strategy | None = None
    experiment: str = ""
    variant: str = "control"
    block: int = 0
    debounce_ms: float | None = None
    speculative: bool | None = None
    min_mean_logprob: MinMeanLogprob = MinMeanLogprob()
    line_chance: LineChance = LineChance()
    local_min_confidence: float = 0.9
    drop_broken: bool = True
    service: Service = Service.FULL
    next_edit: EditWindow | None = None
    block_budgets: Budgets | None = None

    def least_probability(self, *, opens: bool) -> float:
        """The model's probability of a line below which nothing that has it is shown unasked: it need not be generated to its end.

        Args:
            opens: the line may open a block, which is shown by its mean log-probability.
        """
        mean = self.min_mean_logprob.block
        return math.exp(mean * _LONG_TOKENS) if opens else self.line_chance.least_probability
