"""Whether a keystroke becomes a request, and when."""
