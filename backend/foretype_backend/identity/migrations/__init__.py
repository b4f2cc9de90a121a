"""Alembic's folder of the identity store."""
