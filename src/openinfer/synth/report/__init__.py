"""Reports about a plan: costs, the arena, the roofline, profiles."""
