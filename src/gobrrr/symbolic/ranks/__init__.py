"""Ranks that are not there: process groups, and what wraps a model for several of them."""
