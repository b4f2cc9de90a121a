"""A running Ollama, as an engine."""
