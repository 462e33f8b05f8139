"""The history in one SQLite file: written by a thread beside the loop, read by any process, served on loopback."""
