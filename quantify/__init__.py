"""Count, for a trained model, how many inputs of a finite domain satisfy a property."""

__version__ = "0.1.0"
