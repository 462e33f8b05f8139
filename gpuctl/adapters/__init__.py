"""Adapters: one outside system per module, such as Git, files, the clock, the embedded cluster."""
