"""Telemetry of the client: what is recorded, how it is batched, and where it waits for the gateway. Imports nothing."""
