"""Running a gateway: checking its file, reloading it, looking at it from outside."""
