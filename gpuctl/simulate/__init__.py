"""Scenarios as data: what is given, what happens when, what is expected, and the report of what came of it."""
