"""JSON-RPC on standard input and output."""
