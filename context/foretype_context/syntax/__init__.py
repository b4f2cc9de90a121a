"""What a programming language's grammar tells: trees, blocks, brackets, outlines."""
