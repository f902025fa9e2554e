"""What stages exchange: the loop IR with its printer and verifier, and compiled variants."""
