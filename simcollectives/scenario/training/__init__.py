"""Training scenarios: what ``training:`` may say, loading it, and running one step at every point."""
