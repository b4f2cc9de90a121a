"""Many developers on many replicas, in virtual time: routing, and cache tiers of limited size. No engine, no GPU."""
