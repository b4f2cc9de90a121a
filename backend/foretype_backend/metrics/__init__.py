"""What a gateway counts, on a Prometheus registry of its own: requests by their end, times by stage, promises kept."""
