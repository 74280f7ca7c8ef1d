"""GPUs of Intel."""
