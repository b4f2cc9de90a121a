"""Executes candidate programs in throw-away, confined processes."""

from foretype_eval.errors import SandboxError
from foretype_eval.sandbox.pool import Isolation, Program, ProgramLimits, Sandbox, Status, Verdict

__all__ = ["Isolation", "Program", "ProgramLimits", "Sandbox", "SandboxError", "Status", "Verdict"]
