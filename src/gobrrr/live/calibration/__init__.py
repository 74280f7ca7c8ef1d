"""What operators, the profiler and pages given back cost on this machine."""
