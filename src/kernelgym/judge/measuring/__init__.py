"""Measures references and devices in processes of their own."""
