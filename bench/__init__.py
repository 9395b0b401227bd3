"""Benchmarks, each one command; none runs in the test suite."""
