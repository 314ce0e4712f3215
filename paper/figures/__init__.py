"""Figures and videos: of results, of runs, of the theory, all in one style."""
