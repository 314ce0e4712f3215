"""The paper's experiments as data, and the store of their results."""
