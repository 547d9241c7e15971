"""What a training loop did, and when: a recorder, its timeline, a trace."""
