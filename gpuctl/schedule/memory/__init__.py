"""What a cycle hands to the next one: where all stood, and what was told of them. It saves work and decides nothing."""
