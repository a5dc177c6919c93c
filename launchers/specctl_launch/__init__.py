"""Launch plans: what a profile turns into on this machine, checked before anything starts."""
