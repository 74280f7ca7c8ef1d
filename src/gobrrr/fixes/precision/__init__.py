"""Fewer bits: autocast, matmul precision, weights."""
