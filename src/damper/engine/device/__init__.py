"""How work runs on a device: CUDA graphs, pinned copies, threads, precision, several processes on one GPU."""
