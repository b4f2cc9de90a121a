"""The network that is shown: an adapter of ours, merged on this machine with a public base: ``foretype models fetch``."""
