"""The language server that editors use for YAML, driven by the tests."""
