"""Records sorted into cells, what their seeds tell, and how numbers are written."""
