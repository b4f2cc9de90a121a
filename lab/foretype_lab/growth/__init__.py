"""How time and memory grow with ten times the files, sessions, lines, tokens and tenants."""
