"""Who is asked, in which order: who may have a chance, whose turn it is, and what binds those who wait."""
