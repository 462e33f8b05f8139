"""What each job says by itself, before anybody competes: what its run does, what it asks for, and who is alike."""
