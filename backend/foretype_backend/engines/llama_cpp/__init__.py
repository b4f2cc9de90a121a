"""llama.cpp's own server, as an engine."""
