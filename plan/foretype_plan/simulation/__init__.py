"""A fleet in virtual time: the product's own pure parts around a model of an engine's time and memory."""
