"""Doors translate one outside protocol each into `serving.service` and decide nothing."""
