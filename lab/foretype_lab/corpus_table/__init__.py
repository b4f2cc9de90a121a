"""The corpus table of the client's adaptive model: what follows what in published code, in five megabytes."""
