"""Forms of diagnostics that other programs read: each in the words of the standard or service that it is for."""
