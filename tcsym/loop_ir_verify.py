def verify(kernel): pass
