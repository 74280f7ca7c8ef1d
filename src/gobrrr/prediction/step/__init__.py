"""A graph of ops on one device -> its costs, replayed on a host and streams."""
