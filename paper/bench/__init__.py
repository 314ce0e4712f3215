"""Measurements of speed: the workloads of a comparison run alternately in one process."""
