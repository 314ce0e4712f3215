"""Runners that train the missing agents.

In this process, in several processes, or on a Ray cluster.
"""
