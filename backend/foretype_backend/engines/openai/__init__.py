"""Servers that speak OpenAI's completion interface, as engines."""
