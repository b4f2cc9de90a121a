"""Chat, and whole blocks: the quality pool behind its own admission."""
