"""Fill-in-the-middle benchmarks with execution."""
