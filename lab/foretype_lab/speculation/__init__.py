"""What guessing tokens is worth on vLLM."""
