"""How kernels that are no contractions go through memory, one recipe a kind of op."""
