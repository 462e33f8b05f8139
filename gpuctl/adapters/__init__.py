"""One outside system per module: Git, files, the clock, the embedded cluster."""
