"""Steps, ops, kernels and host spans as frozen plain data; interval arithmetic in integer ns.

Nothing is imported here: the command line needs ``timeline.errors`` without numpy.
"""
