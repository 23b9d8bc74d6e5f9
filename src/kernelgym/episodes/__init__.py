"""One episode, turn by turn, without IO."""
