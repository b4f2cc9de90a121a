"""Models beside the one that completes, each behind its own admission: chat, whole blocks, next edits."""
