"""What the fast tier claims of vLLM, with the network that ships."""
