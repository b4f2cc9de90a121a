"""What can be wrong with a plan."""

__all__ = ["PlanError"]


class PlanError(ValueError):
    """One sentence: the field, what is wrong with it, and what would be right.

    Args:
        field: as the file and the flags call it.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
