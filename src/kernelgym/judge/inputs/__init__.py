"""Where inputs come from: seeds, kinds of inputs."""
