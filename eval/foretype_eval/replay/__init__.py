"""Keystroke replay: types real commits through the real client and counts what was saved."""
