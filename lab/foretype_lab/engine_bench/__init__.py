"""The in-process vLLM engine measured: what the gateway adds, what a cancel costs, who shares what, what guessing gains."""
