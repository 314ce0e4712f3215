"""The gradients of an update's losses: the objectives, and two backends with one interface."""
