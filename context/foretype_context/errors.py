"""What goes wrong in context, and the root of what every package of Foretype raises.

::

    ForetypeError                       any exception that is Foretype's own
    └── ContextError                    of this package
        ├── TokenizerError              a tokenizer file cannot be read
        │   └── TokenizerConversionError    tiktoken would give other ids
        ├── UnknownControlError         (LookupError) the tokenizer lacks a control token of the grammar
        ├── UnknownGrammarError         (LookupError) no grammar has this id
        ├── UnknownFormatError          (LookupError) no format of next edits has this id
        ├── EditQuestionError           (ValueError) a question about the next edit cannot be asked of this model
        ├── GrammarError                (ValueError) the description of a grammar cannot be taken
        ├── UnknownLayoutError          (ValueError) the grammar has no such layout
        ├── SegmentOrderError           (ValueError) the grammar cannot say segments in this order
        ├── ProfileError                (ValueError) a profile asks for what cannot be done
        ├── EditRangeError              (ValueError) an edit outside of the document
        ├── GitError                    git is missing, refused or reached a bound
        └── NotSmallError               (OSError) no regular file, or too large to be read

`foretype_wire.errors`, `foretype_client.errors`, `foretype_lsp.errors` and `foretype_retrieval.errors` have a branch each.
"""

from __future__ import annotations


class ForetypeError(Exception):
    """Any exception that is Foretype's own; its message is for a person."""


class ContextError(ForetypeError):
    """What `foretype_context` raises."""


class TokenizerError(ContextError):
    """A tokenizer file cannot be read. The message names the file and the remedy."""


class TokenizerConversionError(TokenizerError):
    """tiktoken would produce other ids than the model's own tokenizer; the message says where they differ."""


class UnknownControlError(ContextError, LookupError):
    """The tokenizer has no such control token: the grammar does not belong to this model."""

    def __init__(self, token: str) -> None:
        super().__init__(f"the tokenizer has no control token {token!r}: choose the grammar the model was trained with")
        self.token = token


class UnknownGrammarError(ContextError, LookupError):
    """No grammar has this id; the message lists those that exist."""


class UnknownFormatError(ContextError, LookupError):
    """No format of next edits has this id; the message lists those that exist."""


class EditQuestionError(ContextError, ValueError):
    """A question about the next edit cannot be asked of this model.

    Attributes:
        field: of the question, that is wrong or too large.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class GrammarError(ContextError, ValueError):
    """A description of a grammar cannot be taken; the message names the field and the remedy."""


class UnknownLayoutError(ContextError, ValueError):
    """A grammar has no layout of this name; the message lists those that it has."""


class SegmentOrderError(ContextError, ValueError):
    """Segments stand in an order that this grammar cannot render; the message says which order it wants."""


class ProfileError(ContextError, ValueError):
    """A profile asks for what cannot be done; the message names the field and what it may be."""


class EditRangeError(ContextError, ValueError):
    """An edit does not lie inside the document; the remedy is to send the whole text again."""


class GitError(ContextError):
    """Git is missing, refused, or took too long or too much room; or a name is unknown. The message says which."""


class NotSmallError(ContextError, OSError):
    """It is no regular file, or it is larger than is read; the message says which."""
