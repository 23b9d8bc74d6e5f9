"""How well searches find what there is to find."""
