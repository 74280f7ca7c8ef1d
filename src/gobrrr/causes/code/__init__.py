"""Causes in the code of the step."""
