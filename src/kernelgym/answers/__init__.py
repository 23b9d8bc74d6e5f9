"""From the text a model wrote to the kernel in it: parsing and screening."""
