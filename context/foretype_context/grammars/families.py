"""Which family a vocabulary belongs to, how sure that is, and what it lacks.

A family is recognised by its control tokens: all that its grammar would emit, and the one that ends its texts. Where several
families fit, what the file says of itself and the known ids decide between them, and where they do not, nothing does: the answer
names those that fit, to be asked about.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import msgspec

from foretype_context.grammars.grammar import GRAMMARS, Grammar, grammar_file
from foretype_context.tokens.tokenizer import Tokenizer

_CHAT_NAME: Final = re.compile(r"(?i)(?:^|[^a-z])(?:instruct|chat|it|devstral|assistant)(?:[^a-z]|$)")
LEFT_TO_RIGHT: Final = "left-to-right"
"""Id of the grammar, and of the family, of models without fill-in-the-middle tokens."""

_OTHERS: Final = ("<|im_start|>", "<|im_end|>", "<|fim_pad|>", "<fim_pad>", "<EOT>")
_CLOSE: Final = 2
"""A vocabulary that lacks no more than this of a grammar is said to resemble it."""


class Proof(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A vocabulary with which prompts were compared, id by id, with those of another's encoder.

    Attributes:
        vocabulary: its name in `requirements/vocabularies.toml`, which says where it is to be had.
        digest: SHA-256 of its file, hex.
        encoder: whose ids they were compared with, and its version.
        files: how many source files, each cut at a random place into a prompt.
        equal: in how many of them all ids were equal.
        note: what is not the family's own in it.
    """

    vocabulary: str
    digest: str
    encoder: str
    files: int
    equal: int
    note: str = ""


class Family(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Models that share a vocabulary and are asked in one grammar.

    Attributes:
        grammar: id of it.
        models: which, for people.
        source: where layout and tokens were read.
        pre: what `tokenizer.ggml.pre` says in its GGUF files.
        marks: tokens that its vocabulary has beside those of the grammar; all of them.
        unlike: tokens of which its vocabulary has none.
        pieces: a SentencePiece vocabulary, or a byte-level one; None where either.
        chat: what has this vocabulary is, as a rule, trained to talk.
        detected: False where a vocabulary alone never says this family.
        ids: of control tokens.
        proof: where its prompts were compared with those of an encoder that is not ours.
    """

    id: str
    grammar: str
    models: str
    source: str
    pre: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()
    pieces: bool | None = None
    chat: bool = False
    detected: bool = True
    ids: Mapping[str, int] = {}
    proof: Proof | None = None

    @property
    def proven(self) -> bool:
        return self.proof is not None and self.proof.equal == self.proof.files > 0


class _Model(msgspec.Struct):
    type: str | None = None
    byte_fallback: bool | None = None


class _File(msgspec.Struct):
    """The parts of a `tokenizer.json` that say of what kind it is."""

    model: _Model
    pre_tokenizer: Any = None
    decoder: Any = None


class Unserved(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A family that can fill in, known by `tokens`, and the reason why it has no grammar here."""

    id: str
    models: str
    tokens: tuple[str, ...]
    reason: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEvidence:
    """What is known of a model before it is asked anything.

    Attributes:
        controls: its control tokens, with their ids where those are known.
        pre: `tokenizer.ggml.pre`, or empty.
        name: what the file or its folder is called.
        pieces: whether the vocabulary is SentencePiece's.
        grammar: id of the one that the file itself names, as those of ours do; else empty.
    """

    controls: Mapping[str, int | None]
    pre: str = ""
    name: str = ""
    pieces: bool | None = None
    grammar: str = ""

    @classmethod
    def of(cls, controls: Iterable[str], **rest: Any) -> ModelEvidence:
        return cls(controls=dict.fromkeys(controls), **rest)

    @classmethod
    def of_tokenizer(cls, tokenizer: Tokenizer, file: bytes, *, pre: str = "", name: str = "") -> ModelEvidence:
        """What a tokenizer and its `tokenizer.json` say."""
        said = msgspec.json.decode(file, type=_File)
        pieces = True if said.model.byte_fallback or said.model.type == "Unigram" else None
        if pieces is None and '"ByteLevel"' in msgspec.json.encode([said.pre_tokenizer, said.decoder]).decode():
            pieces = False
        controls = {token: tokenizer.control(token) for token in tokenizer.controls()}
        return cls(controls=controls, pre=pre, name=name, pieces=pieces)


class Detection(msgspec.Struct, frozen=True, kw_only=True):
    """What a vocabulary is.

    Attributes:
        family: None where no family fits, or several do.
        grammar: which serves it.
        certain: the ids, or the name of the pre-tokeniser, are those of the family; else its control tokens alone say so.
        complete: nothing is missing, not even an end token that could be done without.
        missing: control tokens of the grammar that are not there: of `grammar`, else of the one that it comes nearest to.
        nearest: that one's id, where `grammar` is None.
        chat: its name says that it is trained to talk, or models of its family are, as a rule.
        ambiguous: ids of the grammars that all fit; then one of them has to be named.
        unserved: id of a family that is known and has no grammar.
    """

    family: str | None = None
    grammar: str | None = None
    certain: bool = False
    complete: bool = False
    missing: tuple[str, ...] = ()
    nearest: str | None = None
    chat: bool = False
    ambiguous: tuple[str, ...] = ()
    unserved: str | None = None

    def problem(self) -> str:
        """Why it cannot be served unasked, with what to do about it; empty where it can."""
        if self.grammar is not None:
            return ""
        if self.ambiguous:
            return (
                f"the control tokens fit {' and '.join(self.ambiguous)}; say which: `[model] grammar = "
                f'"{self.ambiguous[0]}"` in --profile FILE'
            )
        for one in unserved():
            if one.id == self.unserved:
                return f"it is {one.models}, which is not served: {one.reason}; describe its grammar in --profile FILE, or take another model"
        if self.nearest is not None:
            return (
                f"it looks like {self.nearest} but lacks {', '.join(self.missing)}; take the base model, or grammar "
                f"{LEFT_TO_RIGHT}, which shows it nothing below the cursor"
            )
        return (
            f"its control tokens fit no known grammar; describe one in --profile FILE, or take grammar {LEFT_TO_RIGHT}, which "
            "shows it nothing below the cursor"
        )

    def warning(self) -> str:
        """What to say of a vocabulary that can be served; empty where there is nothing."""
        if self.grammar == LEFT_TO_RIGHT:
            talks = ", and was trained to chat, by its name" if self.chat else ""
            return (
                f"it has no fill-in-the-middle tokens{talks}: it goes on from the text above the cursor and sees nothing below it; "
                "a base model of a family of `foretype models families` does"
            )
        if self.grammar is not None and self.chat:
            return f"this is the vocabulary of chat models too: unless it is a model for code, {self.grammar} prompts were never learned"
        return ""


@cache
def families() -> tuple[Family, ...]:
    """All that are known, those of one grammar together."""
    return tuple(
        msgspec.convert({"grammar": id, **table}, Family) for id in GRAMMARS for table in grammar_file(id)["family"]
    )


@cache
def unserved() -> tuple[Unserved, ...]:
    """Families that are known and have no grammar."""
    return tuple(msgspec.convert(table, Unserved) for table in grammar_file("_unserved")["family"])


@cache
def known_controls() -> frozenset[str]:
    """Control tokens of every grammar that ships, and a few that models write where they should end."""
    return frozenset(token for one in GRAMMARS.values() for token in one.controls()) | frozenset(_OTHERS)


def names_a_chat_model(name: str) -> bool:
    """Whether the name of a model says that it is trained to talk: Instruct, chat, it."""
    return _CHAT_NAME.search(name) is not None


def detect(evidence: ModelEvidence) -> Detection:
    """The family of a vocabulary."""
    have = evidence.controls.keys()
    talks = names_a_chat_model(evidence.name)
    named = next((one for one in families() if one.grammar == evidence.grammar), None)
    if named is not None and GRAMMARS[named.grammar].needed() <= have:
        return _detected(named, evidence, certain=True, chat=talks)
    fitting = [one for one in families() if one.detected and _fits(one, GRAMMARS[one.grammar], evidence)]
    # A grammar that needs more, and has it, is the more particular one.
    needs = {one.grammar: GRAMMARS[one.grammar].needed() for one in fitting}
    fitting = [one for one in fitting if not any(needs[one.grammar] < other for other in needs.values())]
    if not fitting:
        return _nearest(frozenset(have), chat=talks)
    if not _names_truly(fitting, evidence):
        evidence = replace(evidence, pre="")
    scores = {one.id: _score(one, evidence) for one in fitting}
    best = max(scores.values())
    fitting = [one for one in fitting if scores[one.id] == best]
    grammars = tuple(dict.fromkeys(one.grammar for one in fitting))
    chat = talks or all(one.chat for one in fitting)
    if len(grammars) > 1:
        return Detection(ambiguous=grammars, chat=chat)
    # Families of one grammar that nothing tells apart go by their name, or by the first: their prompts are the same.
    name = evidence.name.lower()
    found = next((one for one in fitting if one.id.split("-")[0] in name), fitting[0])
    certain = _ids_agree(found, evidence) is True or evidence.pre in found.pre
    return _detected(found, evidence, certain=certain, chat=chat)


def _detected(one: Family, evidence: ModelEvidence, *, certain: bool, chat: bool) -> Detection:
    missing = tuple(sorted(GRAMMARS[one.grammar].controls() - evidence.controls.keys()))
    return Detection(
        family=one.id, grammar=one.grammar, certain=certain, complete=not missing, missing=missing, chat=chat
    )


def _fits(one: Family, grammar: Grammar, evidence: ModelEvidence) -> bool:
    have = evidence.controls.keys()
    if not grammar.needed() <= have or any(token in have for token in one.unlike):
        return False
    return one.pieces is None or evidence.pieces is None or one.pieces is evidence.pieces


def _ids_agree(one: Family, evidence: ModelEvidence) -> bool | None:
    """Whether the ids are the family's own; None where there is nothing to compare."""
    known = [(evidence.controls[token], wanted) for token, wanted in one.ids.items() if token in evidence.controls]
    given = [(own, wanted) for own, wanted in known if own is not None]
    return all(own == wanted for own, wanted in given) if len(given) > 1 else None


def _names_truly(fitting: Iterable[Family], evidence: ModelEvidence) -> bool:
    """Whether the pre-tokeniser's name is to be believed: several vocabularies share one, and ids tell those apart.

    A vocabulary split as StarCoder's is, with control tokens at other ids, is not StarCoder's.
    """
    named = [one for one in fitting if evidence.pre in one.pre]
    return not named or any(_ids_agree(one, evidence) is not False for one in named)


def _score(one: Family, evidence: ModelEvidence) -> int:
    """For the family or against it, beyond the tokens of its grammar: each kind of evidence counts one.

    Other ids say nothing: of some families none are known, and they would win by that.
    """
    score = int(_ids_agree(one, evidence) is True)
    if not all(token in evidence.controls for token in one.marks):
        score -= 1
    if evidence.pre and one.pre:
        score += 1 if evidence.pre in one.pre else -1
    return score


def _nearest(have: frozenset[str], *, chat: bool) -> Detection:
    """Of a vocabulary that no grammar fits: the one that it lacks least of, if that is little; left to right without any hole token."""
    for other in unserved():
        if have.issuperset(other.tokens):
            return Detection(unserved=other.id, chat=chat)
    plain = GRAMMARS[LEFT_TO_RIGHT]
    if have.isdisjoint(_hole_tokens()) and not have.isdisjoint(plain.begins):
        return Detection(family=LEFT_TO_RIGHT, grammar=LEFT_TO_RIGHT, complete=True, chat=chat)
    holes = [(id, one) for id, one in GRAMMARS.items() if one.sees_below]
    count, _, id = min((len(one.needed() - have), -len(one.needed()), id) for id, one in holes)
    one = GRAMMARS[id]
    # Where all is there, something else says no.
    if not 0 < count <= _CLOSE or have.isdisjoint({one.fim_prefix, one.fim_suffix, one.fim_middle}):
        return Detection(chat=chat)
    return Detection(nearest=id, missing=tuple(sorted(one.controls() - have)), chat=chat)


@cache
def _hole_tokens() -> frozenset[str]:
    """What some family says a hole with, and not a header: a plain model may have `<file_sep>`."""
    holes = {token for one in GRAMMARS.values() for token in (one.fim_prefix, one.fim_suffix, one.fim_middle)} - {""}
    headers = frozenset[str]().union(*(one.emitted() for one in GRAMMARS.values())) - holes
    return frozenset(holes).union(*(one.tokens for one in unserved())) - headers
