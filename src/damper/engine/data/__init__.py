"""The data of training: replay, random numbers by seed and counter, statistics of episodes and observations."""
