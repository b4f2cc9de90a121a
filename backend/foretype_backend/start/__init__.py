"""From a configuration to a gateway that serves, and what `foretype config check` says before."""
