"""What the product says about itself: the memory and processor time of its processes."""
