"""What a program need not compute, found in the flow of its data."""
