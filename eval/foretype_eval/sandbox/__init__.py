"""Executes candidate programs in throw-away, confined processes."""

from foretype_eval.sandbox.pool import Isolation, Limits, Program, Sandbox, SandboxError, Status, Verdict

__all__ = ["Isolation", "Limits", "Program", "Sandbox", "SandboxError", "Status", "Verdict"]
