"""Alembic's scripts, packaged with the gateway."""
