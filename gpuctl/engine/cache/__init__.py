"""What a cycle hands to the next one. It saves work and decides nothing: a fresh cache gives the same decisions."""
