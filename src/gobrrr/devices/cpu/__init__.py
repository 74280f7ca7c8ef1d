"""Processors."""
