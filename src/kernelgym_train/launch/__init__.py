"""From a configuration to a run: parts put together, the dry run, memory."""
