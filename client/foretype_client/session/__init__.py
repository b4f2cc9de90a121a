"""One long-lived connection to a gateway."""
