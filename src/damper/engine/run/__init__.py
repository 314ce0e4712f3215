"""A run's files and its output while it lasts."""
