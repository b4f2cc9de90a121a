"""How the prompts of each model family are written, as data, and which family a vocabulary belongs to."""
