"""What an op costs on a device: its roof, and a model of the kernels that run it."""
