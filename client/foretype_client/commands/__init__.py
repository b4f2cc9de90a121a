"""The sub-commands of `foretype` that the client brings itself, one module each."""
