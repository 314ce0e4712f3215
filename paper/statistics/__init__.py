"""Records sorted into cells, and what their seeds tell: means, intervals, differences, and how numbers are written."""
