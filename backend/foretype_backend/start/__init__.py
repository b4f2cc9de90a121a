"""From a configuration to a gateway that serves."""
