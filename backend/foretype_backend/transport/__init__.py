"""Sockets, HTTP and WebSocket frames below the doors."""
