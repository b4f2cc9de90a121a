"""vLLM as an engine: inside the gateway's process, or as a replica of `vllm serve`."""
