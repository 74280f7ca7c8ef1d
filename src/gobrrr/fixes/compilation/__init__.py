"""What a compiler or a captured graph takes away."""
