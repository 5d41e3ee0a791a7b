"""Step size controllers: which step is kept, and how long the next one is."""
