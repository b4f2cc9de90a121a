"""The gateway's telemetry: what clients report is checked, committed, acknowledged, added up, and forgotten in time."""
