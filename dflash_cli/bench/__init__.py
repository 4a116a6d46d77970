"""`dflash bench`: plain decoding, DFlash and peers side by side, and how far each is from what the machine allows."""
