"""Live experiments: what a variant is, who sees it when, what stops it, and the verdict."""
