"""Foretype's laboratory: how its models and tables are made and its claims are measured. Not installed with it."""
