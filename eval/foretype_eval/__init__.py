"""Benchmarks and replay - every published figure is made here."""
