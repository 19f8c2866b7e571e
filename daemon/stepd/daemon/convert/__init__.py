"""The one place where wire messages become core's values and back."""
