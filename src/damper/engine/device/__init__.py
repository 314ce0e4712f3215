"""How work runs on a device: CUDA graphs, copies, threads, precision, processes on one GPU."""
