"""A script rewritten with a fix in it."""
