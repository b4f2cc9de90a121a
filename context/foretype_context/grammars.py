"""The grammars: one entry per model family, as data.

Where formats come from: Qwen2.5-Coder's README (repository and file level), StarCoder2's paper section 5 (`<fim_prefix>`
stands *before* the path), Code Llama's paper section 2.3 and its tokenizer's infilling mode (no space is put before the
parts), DeepSeek-Coder's README (repository level: `#path` above each file), Mistral's `encode_fim` (suffix first) with the
`+++++ path` headers that Codestral saw.

What a family costs that was not trained on a tail token: the text right of the cursor then stands at the *start* of the
suffix (llama.vim's order), so that a change of it (an auto-inserted bracket, a jump inside a line) recomputes the whole
suffix; ours recomputes the tail alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from foretype_context.errors import UnknownGrammarError, UnknownLayoutError

__all__ = [
    "GRAMMARS",
    "PSM_CLASSIC",
    "PSM_GROWING",
    "PSM_LINE_LAST",
    "SPM",
    "Control",
    "Grammar",
    "Header",
    "detect",
    "grammar",
]

PSM_CLASSIC: Final = "psm_classic"
PSM_LINE_LAST: Final = "psm_line_last"
PSM_GROWING: Final = "psm_growing"
SPM: Final = "spm"


@dataclass(frozen=True, slots=True)
class Control:
    """One control token, a single id."""

    token: str


Header = tuple[Control | str, ...]
"""Control tokens and literal texts; `{path}` and `{name}` are filled in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """One model family.

    Attributes:
        start: tokens before everything else.
        repository, file, current: what stands before the repository's name, another file, the current file.
        fim_prefix, fim_suffix, fim_middle: tokens before the three parts; in suffix-first families without a middle token
            `fim_middle` is empty and the prefix's own token introduces the prefix.
        tail: token before the text right of the cursor, or empty: then that text begins the suffix.
        tail_lines: how many lines after the cursor's the tail may hold too, down to a frozen suffix; what the model was
            trained on.
        prefix_opens: the prefix token stands before the context, since the family has no place for other files outside.
        suffix_first: the suffix precedes everything else (Codestral).
        layouts: what :class:`~foretype_context.assemble.Assembler` may send, the default first.
        end_tokens: control tokens that end a generation.
        heals: the model was not trained on cuts at arbitrary characters, so a prompt must end at a pre-token boundary.
        telltale: control tokens by which :func:`detect` knows the family.
    """

    id: str
    fim_prefix: str
    fim_suffix: str
    fim_middle: str
    start: tuple[Control, ...] = ()
    repository: Header = ()
    file: Header = ()
    current: Header = ()
    tail: str = ""
    tail_lines: int = 0
    prefix_opens: bool = False
    suffix_first: bool = False
    layouts: tuple[str, ...] = (PSM_LINE_LAST, PSM_GROWING, PSM_CLASSIC)
    end_tokens: tuple[str, ...]
    heals: bool = False
    telltale: frozenset[str]

    def controls(self) -> frozenset[str]:
        """Every control token that this grammar can put into a prompt or that ends its generations."""
        headers = (*self.start, *self.repository, *self.file, *self.current)
        own = {part.token for part in headers if isinstance(part, Control)}
        own |= {self.fim_prefix, self.fim_suffix, self.fim_middle, self.tail, *self.end_tokens}
        return frozenset(own - {""})

    def layout(self, configured: str | None = None, own: object = None) -> str:
        """The layout that serves a model of this family: the configured one, else the model's own, else the family's default.

        A configured one that the family lacks counts as none: configuration outlives models.

        Raises:
            UnknownLayoutError: `own`, from the model's `index.json`, is none of this family's.
        """
        if configured in self.layouts:
            return configured
        return self.layouts[0] if own is None else self.known_layout(own)

    def known_layout(self, name: object) -> str:
        """`name`, if it is one of `layouts`. Raises UnknownLayoutError, which lists them."""
        for one in self.layouts:
            if one == name:
                return one
        raise UnknownLayoutError(f"{name!r} is not one of {', '.join(self.layouts)} of {self.id}")


def _grammar(**fields: object) -> Grammar:
    telltale = frozenset(str(fields[name]) for name in ("fim_prefix", "fim_suffix", "fim_middle")) - {""}
    return Grammar(**{"telltale": telltale, **fields})  # pyright: ignore[reportArgumentType]


def _foretype(**fields: object) -> Grammar:
    """Our own family. From its second grammar on a tail may hold up to three lines more, and the layout that grows ships."""
    return _grammar(
        repository=(Control("<|repo_name|>"), "{name}\n"),
        file=(Control("<|file_sep|>"), "{path}\n"),
        current=(Control("<|file_sep|>"), "{path}\n"),
        fim_prefix="<|fim_prefix|>",
        fim_suffix="<|fim_suffix|>",
        fim_middle="<|fim_middle|>",
        tail="<|fim_tail|>",
        end_tokens=("<|end_of_middle|>", "<|endoftext|>", "<|file_sep|>", "<|repo_name|>", "<|fim_prefix|>"),
        telltale=frozenset({"<|fim_tail|>", "<|end_of_middle|>", "<|fim_middle|>"}),
        **fields,
    )


_ALL: Final = (
    _foretype(id="foretype-1", layouts=(PSM_LINE_LAST, PSM_GROWING, PSM_CLASSIC, SPM)),
    _foretype(id="foretype-2", layouts=(PSM_GROWING, PSM_LINE_LAST, PSM_CLASSIC, SPM), tail_lines=3),
    _grammar(
        id="qwen2.5-coder",
        repository=(Control("<|repo_name|>"), "{name}\n"),
        file=(Control("<|file_sep|>"), "{path}\n"),
        current=(Control("<|file_sep|>"), "{path}\n"),
        fim_prefix="<|fim_prefix|>",
        fim_suffix="<|fim_suffix|>",
        fim_middle="<|fim_middle|>",
        end_tokens=("<|endoftext|>", "<|fim_pad|>", "<|file_sep|>", "<|repo_name|>"),
        heals=True,
    ),
    _grammar(
        id="starcoder2",
        repository=(Control("<repo_name>"), "{name}"),
        file=(Control("<file_sep>"), "{path}\n"),
        current=(Control("<file_sep>"), Control("<fim_prefix>"), "{path}\n"),
        fim_prefix="<fim_prefix>",
        fim_suffix="<fim_suffix>",
        fim_middle="<fim_middle>",
        end_tokens=("<|endoftext|>", "<file_sep>", "<repo_name>"),
    ),
    _grammar(
        id="codellama",
        start=(Control("<s>"),),
        file=("# {path}\n",),
        fim_prefix="▁<PRE>",
        fim_suffix="▁<SUF>",
        fim_middle="▁<MID>",
        prefix_opens=True,
        end_tokens=("▁<EOT>", "</s>"),
    ),
    _grammar(
        id="deepseek-coder",
        start=(Control("<｜begin▁of▁sentence｜>"),),
        file=("#{path}\n",),
        current=("#{path}\n",),
        fim_prefix="<｜fim▁begin｜>",
        fim_suffix="<｜fim▁hole｜>",
        fim_middle="<｜fim▁end｜>",
        prefix_opens=True,
        end_tokens=("<｜end▁of▁sentence｜>", "<|EOT|>"),
        heals=True,
    ),
    _grammar(
        id="codestral",
        start=(Control("<s>"),),
        file=("+++++ {path}\n",),
        current=("+++++ {path}\n",),
        fim_prefix="[PREFIX]",
        fim_suffix="[SUFFIX]",
        fim_middle="",
        suffix_first=True,
        layouts=(SPM,),
        end_tokens=("</s>",),
        heals=True,
    ),
)

GRAMMARS: Final = MappingProxyType({one.id: one for one in _ALL})


def grammar(id: str) -> Grammar:
    """The grammar with this id. Raises UnknownGrammarError."""
    try:
        return GRAMMARS[id]
    except KeyError:
        raise UnknownGrammarError(f"no grammar {id!r}; there are {', '.join(GRAMMARS)}") from None


def detect(control_tokens: Iterable[str]) -> Grammar | None:
    """The first grammar all of whose telltale tokens are among `control_tokens`; the most particular one is tried first."""
    known = frozenset(control_tokens)
    return next((one for one in _ALL if one.telltale <= known), None)
