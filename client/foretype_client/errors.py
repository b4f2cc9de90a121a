"""What a client raises of its own; what the gateway answers and the connection does is in `foretype_wire.errors`.

::

    ForetypeError                       (foretype_context.errors)
    └── ClientError                     of this package
        ├── GatewayStartError           (GatewayGoneError) the private gateway did not start
        ├── TokenizerFetchError         the tokenizer of the gateway's model could not be had
        ├── ModelChoiceError            the private gateway did not get another model
        ├── ChatRefusedError            the gateway's larger models gave no answer
        ├── TableError                  the table of the adaptive model cannot be read
        └── InputError                  a command cannot work on what its user gave
"""

from __future__ import annotations

from foretype_context.errors import ForetypeError
from foretype_wire.errors import GatewayGoneError


class ClientError(ForetypeError):
    """What `foretype_client` raises of its own."""


class GatewayStartError(ClientError, GatewayGoneError):
    """The private gateway could not be started; the message carries its last words and where to read more."""


class TokenizerFetchError(ClientError):
    """The tokenizer could not be had: no connection, a refusal, or bytes that are not those of the digest."""


class ModelChoiceError(ClientError):
    """The private gateway did not get another model; one sentence that says why and what to do."""


class ChatRefusedError(ClientError):
    """The gateway gave no answer; `code` is its own (`pool_missing`, `overloaded`, …), the message is for a person."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class TableError(ClientError):
    """The table cannot be read; the message names the file and the remedy."""


class InputError(ClientError):
    """What the user gave cannot be worked on; the message says what is wrong and what would be right."""
