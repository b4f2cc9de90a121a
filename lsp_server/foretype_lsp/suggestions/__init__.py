"""Messages about suggestions."""
