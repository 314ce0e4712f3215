"""A run's files and its output while it lasts: folder, lock, checkpoints, metrics, policies, progress."""
