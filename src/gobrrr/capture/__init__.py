"""A callable, a script or a trace file -> a timeline of what ran."""
