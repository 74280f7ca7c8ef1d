"""Trace files, one reader per format, in a tuple -> a timeline; copies of traces for others."""
