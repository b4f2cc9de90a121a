"""Engines that are many: replicas behind one engine port, their health, and what of their caches is known."""
