"""The reference model: run, examined, remembered."""
