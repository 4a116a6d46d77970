"""`dflash train-drafter`: from prompts to a drafter in the released format. Importing this imports no torch."""
