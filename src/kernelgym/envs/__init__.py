"""The Gymnasium environments, single and vector, their wrappers, and drivers that await."""
