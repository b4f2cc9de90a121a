"""Admission: which request runs, waits, or is refused. Pure; `serving.service` is the only caller."""
