"""Which replica computes a request. Pure: no clock, no socket."""
