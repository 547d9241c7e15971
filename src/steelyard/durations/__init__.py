"""Durations that were observed, or cut: survival, quantiles, intervals whose unit is the step."""
