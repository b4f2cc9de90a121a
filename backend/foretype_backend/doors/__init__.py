"""Doors translate one outside protocol each into ``serve`` and decide nothing."""
