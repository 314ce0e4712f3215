"""What training reads and writes each step: replay, random numbers by counter, episode statistics."""
