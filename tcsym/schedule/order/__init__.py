"""Loops merged, coalesced, interchanged, distributed; terms put in order."""
