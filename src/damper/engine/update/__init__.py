"""Changing parameters: the population's update, Adam, and the learner that samples, draws noise and updates."""
