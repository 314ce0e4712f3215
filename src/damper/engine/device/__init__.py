"""How work runs on a device: CUDA graphs, side streams, pinned copies, compilation, threads, precision."""
