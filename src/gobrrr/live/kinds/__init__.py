"""Which steps are alike, and what stands between them."""
