"""What a model file is worth: on held-out projects, in each engine, and on the card."""
