"""What a reward costs a training step: seconds, idle share, corrupted groups, dollars."""
