"""What a team sees of its suggestions: figures by week, each with its denominator, and no group too small to hide a developer in."""
