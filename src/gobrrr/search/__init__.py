"""Consider every fix, try those that promise something, combine what helps: within a budget."""
