"""Sockets, TLS, HTTP and WebSocket frames below the doors, and how late the event loop is."""
