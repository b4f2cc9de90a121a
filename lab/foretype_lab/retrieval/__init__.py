"""What retrieval is worth: the definitions it finds, and what it costs."""
