"""The network and the adaptive model as one: which of what they know says best that a text will be taken."""
