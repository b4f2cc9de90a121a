"""`docs/measurements/shipped-model.md`: the shipped model under every setting, on commits that it never saw."""
