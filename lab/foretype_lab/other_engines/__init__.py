"""Engines that live in environments of their own (`make peer-env`, `make vllm-env`), driven as child processes."""
