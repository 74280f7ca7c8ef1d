"""The facts of a program that fixes decide by."""
