"""Pages and what they say: ``report.html``, and the marked places of Markdown pages."""
