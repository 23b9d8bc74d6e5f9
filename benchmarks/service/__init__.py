"""What the verdict service costs, and whether it loses anything under faults."""
