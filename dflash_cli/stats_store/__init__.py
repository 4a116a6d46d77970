"""What every answer of `chat` and `run` left in figures, and what they add up to: `dflash stats`. Imports no torch."""
