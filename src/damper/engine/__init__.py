"""The population engine: many agents trained as one batch."""
