"""A new revision of a model or template, to more and more developers, and back by itself. Pure; the caller passes time and figures in."""
