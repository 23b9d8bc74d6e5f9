"""Training on a Tinker service: remote LoRA weights, the episodes and credit of every backend."""
