"""Open documents, and what a programming language's grammar tells of them: trees, blocks, brackets, outlines."""
