"""Scenarios and traces as data, replayed in virtual time: what is given, the events, the expectations, the report."""
