"""What a kernel left in its outputs, compared with the reference's."""
