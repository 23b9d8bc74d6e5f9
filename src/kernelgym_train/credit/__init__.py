"""From scores to advantages and weights."""
