"""The data of training: replay, random numbers, statistics of episodes and observations."""
