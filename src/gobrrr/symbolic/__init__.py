"""A step under fake tensors, on a device and ranks that are not there -> a graph of ops."""
