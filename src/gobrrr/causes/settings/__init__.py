"""Causes in settings of the framework and the machine."""
