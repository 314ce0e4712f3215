"""Who trains the missing agents: this process, workers beside it, or a Ray cluster."""
