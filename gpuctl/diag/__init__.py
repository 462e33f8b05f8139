"""Messages for people: source spans, diagnostics, the error catalogue and its text forms."""
