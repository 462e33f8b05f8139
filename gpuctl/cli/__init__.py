"""The command line: one command a module. A command parses, calls a verb of `app` through `wiring`, prints a view."""
