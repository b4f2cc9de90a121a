"""`foretype bench latency`: how fast the whole path is on this machine."""
