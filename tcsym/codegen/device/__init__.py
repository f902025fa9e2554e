"""Code for devices: regions as functions of one thread."""
