"""Spans with times of our own clocks, at both ends of the wire."""
