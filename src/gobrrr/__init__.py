"""gobrrr: where a PyTorch step's time goes, what would help, and proof."""
