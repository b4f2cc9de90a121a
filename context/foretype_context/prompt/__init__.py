"""What is in a prompt and where it stands: segments, windows, layouts, the plan."""
