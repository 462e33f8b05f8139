"""How gpuctl tells people things: spans, diagnostics, the error catalogue and its text forms."""
