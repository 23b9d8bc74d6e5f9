"""The degeneracy gate: can a problem be passed without work?"""
