"""The completion flow: from a cursor position to a suggestion."""
