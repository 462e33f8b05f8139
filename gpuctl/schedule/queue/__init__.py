"""Which pending jobs are attempted, in which order, and why the others wait."""
