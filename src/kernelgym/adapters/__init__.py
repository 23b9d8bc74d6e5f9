"""Adapters: the judge as other projects' programs call it."""
