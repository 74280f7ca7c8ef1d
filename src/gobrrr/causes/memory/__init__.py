"""Causes in how memory is given and kept."""
