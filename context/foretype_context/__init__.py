"""Documents, syntax, segments, templates, budgets, prompt assembly and post-processing.

The ground floor: imports nothing else of Foretype. This file imports nothing, so that a caller pays only for the module
it names.
"""
