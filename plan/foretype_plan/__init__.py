"""Capacity, cost and objectives of a fleet before it is bought: formulas with sources, and what they give."""
