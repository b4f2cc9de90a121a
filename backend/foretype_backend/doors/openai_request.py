"""The body of OpenAI's `/v1/completions`. A field that would change the answer, and that this gateway does not serve, is refused by name."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from foretype_context.prompt.profile import Stop
from foretype_wire.errors import InvalidRequestError
from foretype_wire.gateway_protocol import check_stop

_Id = Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 0})]
_One = Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 0, "maximum": 1})]
_Stop = Annotated[str, msgspec.Meta(extra_json_schema={"minLength": 1, "maxLength": 256})]
_Share = Annotated[float, msgspec.Meta(extra_json_schema={"minimum": 0, "maximum": 1})]
_Zero = Annotated[float, msgspec.Meta(extra_json_schema={"const": 0})]
Ids = list[int | str | list[int]]
_Never = Annotated[Any, msgspec.Meta(extra_json_schema={"const": None})]


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None


class CompletionRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """With `suffix` the prompt is text left of the cursor; else it is one text, or one list of token ids, to go on from.

    A field with null counts as left out, as OpenAI's reference says of optional fields.

    Attributes:
        temperature: 0 where it is left out: the likeliest token each time.
        top_p: like `top_k`, `min_p` and `seed`, accepted only where it changes nothing, which is at temperature 0.
        presence_penalty: like the fields behind it, accepted only with the value that leaving it out means.
        user: ignored.
    """

    prompt: str | list[_Id | str | list[_Id]] | None = None
    model: str | None = None
    suffix: str | None = None
    max_tokens: Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 0})] | None = None
    temperature: Annotated[float, msgspec.Meta(extra_json_schema={"minimum": 0, "maximum": 2})] | None = None
    stop: _Stop | Annotated[list[_Stop], msgspec.Meta(extra_json_schema={"maxItems": 16})] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: _One | None = None
    best_of: _One | None = None
    echo: Annotated[bool, msgspec.Meta(extra_json_schema={"const": False})] | None = None
    top_p: _Share | None = None
    top_k: Annotated[int, msgspec.Meta(extra_json_schema={"minimum": -1})] | None = None
    min_p: _Share | None = None
    seed: int | None = None
    presence_penalty: _Zero | None = None
    frequency_penalty: _Zero | None = None
    repetition_penalty: Annotated[float, msgspec.Meta(extra_json_schema={"const": 1})] | None = None
    logit_bias: Annotated[dict[str, float], msgspec.Meta(extra_json_schema={"maxProperties": 0})] | None = None
    logprobs: _Never = None
    min_tokens: Annotated[int, msgspec.Meta(extra_json_schema={"const": 0})] | None = None
    response_format: dict[str, Any] | None = None
    user: str | None = None


_DEFAULTS: Final[dict[str, tuple[Any, ...]]] = {
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "repetition_penalty": (None, 1),
    "logit_bias": (None, {}),
    "logprobs": (None,),
    "min_tokens": (None, 0),
    "response_format": (None, {"type": "text"}),
}
"""Values that mean the same as leaving the field out."""
_SAMPLING_DEFAULTS: Final[dict[str, tuple[Any, ...]]] = {
    "top_p": (None, 1),
    "top_k": (None, 0, -1),
    "min_p": (None, 0),
    "seed": (None,),
}
"""The same for fields that have no effect at temperature 0, where no token is drawn by chance."""


def check(body: CompletionRequest) -> None:
    """Raises InvalidRequestError, which names the first field that is wrong, or that this gateway does not do."""
    if body.max_tokens is not None and body.max_tokens < 0:
        raise InvalidRequestError("max_tokens", "must not be negative")
    if body.temperature is not None and not 0 <= body.temperature <= 2:
        raise InvalidRequestError("temperature", "must be between 0 and 2")
    if (body.n or 1) != 1 or (body.best_of or 1) != 1:
        raise InvalidRequestError(
            "n" if (body.n or 1) != 1 else "best_of", "one completion per request; ask again for more"
        )
    if body.echo:
        raise InvalidRequestError("echo", "the prompt is not repeated; leave `echo` out")
    for name, share in (("top_p", body.top_p), ("min_p", body.min_p)):
        if share is not None and not 0 <= share <= 1:
            raise InvalidRequestError(name, "must be between 0 and 1")
    if body.top_k is not None and body.top_k < -1:
        raise InvalidRequestError("top_k", "must be at least -1")
    for name, same in _DEFAULTS.items():
        if getattr(body, name) not in same:
            raise InvalidRequestError(name, f"not done here; leave `{name}` out")
    for name, same in _SAMPLING_DEFAULTS.items() if body.temperature else ():
        if getattr(body, name) not in same:
            raise InvalidRequestError(
                name, f"tokens are drawn by `temperature` alone; leave `{name}` out, or ask at temperature 0"
            )
    if body.suffix is not None and isinstance(prompt_of(body), list):
        raise InvalidRequestError("suffix", "goes with a prompt of text, and this one is token ids")


def stop_of(body: CompletionRequest) -> Stop:
    strings = [body.stop] if isinstance(body.stop, str) else list(body.stop or ())
    try:
        check_stop(strings, None, None)
    except InvalidRequestError as error:
        raise InvalidRequestError("stop", error.message) from error
    return Stop(strings=strings)


def prompt_of(body: CompletionRequest) -> str | Ids:
    """The prompt. A request has at most one, so a list that holds one list or one text stands for that one."""
    prompt = body.prompt
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        return prompt[0] if isinstance(prompt[0], str) else [*prompt[0]]
    return prompt or ""
