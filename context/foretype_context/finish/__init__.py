"""What of a generated text is shown."""
