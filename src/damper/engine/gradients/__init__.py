"""From an update's losses to gradients: the objectives, and two backends behind one interface."""
