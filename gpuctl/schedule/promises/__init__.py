"""Places that are kept: for who was promised one, for who waits longest, and among those that start together."""
