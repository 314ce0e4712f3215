"""The paper's tables from cells, in Markdown and LaTeX."""
