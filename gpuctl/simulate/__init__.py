"""Scenarios and traces as data, replayed in virtual time: the given state, the events, the expectations, the report."""
