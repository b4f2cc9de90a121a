"""What can be wrong with a plan.

* `PlanError` (ValueError): by whatever reads or reckons one; told by `foretype plan` and `foretype simulate`
"""

from foretype_context.errors import ForetypeError


class PlanError(ForetypeError, ValueError):
    """One sentence: the field, what is wrong with it, and what would be right.

    Args:
        field: as the file and the flags call it.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
