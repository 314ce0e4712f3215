"""Runners that train missing agents: here, in several processes, or on a Ray cluster."""
