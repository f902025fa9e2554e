"""Integer index expressions and conditions: the one integer language of all stages."""
