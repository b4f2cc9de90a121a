"""Executes candidate programs in throw-away, confined processes."""

from foretype_eval.sandbox.pool import Isolation, Program, ProgramLimits, ProgramResult, Sandbox, Status

__all__ = ["Isolation", "Program", "ProgramLimits", "ProgramResult", "Sandbox", "Status"]
