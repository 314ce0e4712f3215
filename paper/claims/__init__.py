"""The paper's claims: each taken apart into comparisons, and what the records say of it."""
