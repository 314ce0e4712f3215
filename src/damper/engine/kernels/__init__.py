"""A linear layer with its activation, forward and backward: plain PyTorch for any device, Triton for a GPU."""
