"""Commands that ask the gateway's larger models about what is selected: explain, document, complete this function."""
