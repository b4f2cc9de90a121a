"""The fleet on Ray Serve: its file, its command, what runs under Ray. Nothing else imports `ray`, and no gateway imports this.

Ray places, starts, heals and scales replicas; a request never passes through it. Each replica spawns `vllm serve` on a port of its own
and is announced by the directory; gateways read that and talk to the replica itself.
"""
