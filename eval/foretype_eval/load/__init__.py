"""Load: simulated developers against a gateway, arrivals that wait for nobody, latencies that leave nothing out."""
