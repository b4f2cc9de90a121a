"""What a checkpoint becomes: GGUF and safetensors, and reading them back."""
