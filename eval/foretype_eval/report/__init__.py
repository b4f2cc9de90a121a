"""The report of one or more runs: one HTML page that needs nothing else, and the same figures as JSON."""
