"""Causes in how batches are loaded."""
