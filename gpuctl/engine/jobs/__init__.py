"""What each job says by itself, before jobs compete: what its run does, what it asks for, and which jobs are alike."""
