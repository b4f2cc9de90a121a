"""Open documents and the positions that editors count in."""
