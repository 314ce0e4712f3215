"""Changing parameters: the population's update, Adam, and the learner that feeds it data."""
