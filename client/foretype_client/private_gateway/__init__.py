"""The user's own gateway: joined if it runs, started if it does not."""
