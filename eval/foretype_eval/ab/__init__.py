"""Online experiments: assignment, checks, estimates that survive peeking, and a simulation that shows that they do."""
