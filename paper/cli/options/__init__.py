"""Options of ``python -m paper``, as data."""
