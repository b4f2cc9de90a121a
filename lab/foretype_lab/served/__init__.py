"""What `vllm serve` does with a prompt that it, or another server, has computed before: real servers, on CPUs."""
