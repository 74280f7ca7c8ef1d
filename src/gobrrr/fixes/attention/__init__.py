"""Attention written out, with dropout or in a slow layout."""
