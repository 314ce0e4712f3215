"""One linear layer with its activation, forwards and backwards: plain PyTorch for any device, Triton for a GPU."""
