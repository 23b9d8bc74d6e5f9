"""Training on a Tinker service: remote LoRA weights, our episodes and credit."""
