"""From pixels to a feature store."""
