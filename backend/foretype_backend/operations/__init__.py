"""Running a gateway: checking its file, reloading it, draining, looking at it from outside."""
