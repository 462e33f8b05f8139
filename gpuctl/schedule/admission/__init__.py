"""Who starts, grows or goes on, and who makes way for whom: the turns of a cycle, and what they come to."""
