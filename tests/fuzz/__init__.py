"""Fuzzers: see `harness`."""
