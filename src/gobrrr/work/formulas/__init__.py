"""One file for each family of operators: their work, registered when it is imported."""
