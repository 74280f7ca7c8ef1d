"""Values of fake tensors: what is known, followed, assumed or asked of them."""
