"""Who belongs to a pool: where replicas are announced, what of it is believed, and how they come and go."""
