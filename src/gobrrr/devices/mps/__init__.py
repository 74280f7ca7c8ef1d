"""GPUs of Apple."""
