"""Running a gateway: reloading it, its workers, looking at it from outside."""
