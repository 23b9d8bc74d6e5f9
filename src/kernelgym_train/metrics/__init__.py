"""Numbers of a step, and the guards that watch them."""
