"""Runners that train the missing agents: in this process, in several processes, or on a Ray cluster."""
