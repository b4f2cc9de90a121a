"""Admission: which request runs, waits, or is refused. Pure; `serve` is the only caller."""
