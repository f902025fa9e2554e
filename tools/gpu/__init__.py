"""What a CUDA device has to show in minutes: results first, then speeds, then costs of launches."""
