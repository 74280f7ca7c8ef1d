"""GPUs that PyTorch drives as ``torch.cuda``: CUDA and ROCm."""
