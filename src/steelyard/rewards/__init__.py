"""Rewards: questions about one completion. They see no queue, no disk, no trainer."""
