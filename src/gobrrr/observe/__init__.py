"""What all that watches a running program shares: the recorder of ops, hooks, lines, snapshots."""
