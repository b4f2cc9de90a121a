"""What became of a suggestion."""
