"""What a run leaves on disk and tells while it lasts: folder, lock, checkpoints, metrics, policies, progress."""
