"""Errors of the HTTP doors, each in the form of its own protocol."""

from __future__ import annotations

from typing import Literal, TypedDict


class ErrorDetail(TypedDict):
    """`code` is for programs, `message` for people; `param` names the field that is wrong."""

    message: str
    type: Literal["invalid_request_error", "server_error"]
    param: str | None
    code: str


class GatewayError(TypedDict):
    """OpenAI's form of an error."""

    error: ErrorDetail


class InfillErrorDetail(TypedDict):
    code: int
    message: str
    type: Literal["invalid_request_error", "unavailable_error"]


class InfillError(TypedDict):
    """llama.cpp's form of an error."""

    error: InfillErrorDetail


class PageErrorDetail(TypedDict):
    code: str
    message: str
    field: str | None


class PageError(TypedDict):
    """The playground's form of an error."""

    error: PageErrorDetail
