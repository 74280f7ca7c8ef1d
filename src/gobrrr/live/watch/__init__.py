"""What is seen of the program between its steps: calls, loaders, threads, compilations."""
