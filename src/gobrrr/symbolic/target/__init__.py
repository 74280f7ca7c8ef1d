"""What a program sees of a device that is not there, and which kernels run on it."""
