"""Answers of the door for next edits."""

from __future__ import annotations

from typing import TypedDict

from foretype_backend.doors.answers.openai import Usage


class WindowEditAnswer(TypedDict):
    """Characters `[start, end)` of the window become `text`."""

    start: int
    end: int
    text: str


class NextEditAnswer(TypedDict):
    """`reason` says why there is no edit; it is empty beside one."""

    edit: WindowEditAnswer | None
    reason: str
    usage: Usage
