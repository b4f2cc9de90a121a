"""How many replicas a pool should have: one pure function, for Ray Serve, for the planner's simulation, and as Prometheus rules."""
