"""Every figure that is promised, beside its aim and beside a commit: one command over the benches that exist."""
