"""The embedded engine: OpenVINO GenAI or llama.cpp in a process of its own."""
