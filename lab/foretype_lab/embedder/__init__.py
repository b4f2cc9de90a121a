"""The index's embedder: training pairs, training, and what search and its kinds of index are fitted to."""
