"""Records sorted into cells, and what their seeds tell.

Means, intervals, differences, and how numbers are written.
"""
