"""Forms of diagnostics for other programs, each in the words of its standard or service."""
