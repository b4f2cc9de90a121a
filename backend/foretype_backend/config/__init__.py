"""What a gateway is configured with: read once at the edge, checked before anything is opened."""
