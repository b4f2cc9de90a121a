"""What retrieval is worth: the definitions it finds, the lines that are right because of it, and what it costs."""
