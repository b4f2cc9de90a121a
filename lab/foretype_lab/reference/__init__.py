"""`docs/reference/`: what the code knows of itself, as pages. `make reference` writes them, a test compares them."""
