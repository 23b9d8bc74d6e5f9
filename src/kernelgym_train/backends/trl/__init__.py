"""Training with TRL: a LoRA adapter on local devices."""
