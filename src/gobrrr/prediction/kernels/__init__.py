"""An op on a device -> the seconds of its kernels, by a model, with an interval."""
