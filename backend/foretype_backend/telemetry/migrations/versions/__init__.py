"""One module per revision, in order."""
