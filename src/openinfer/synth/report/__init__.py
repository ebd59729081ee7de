"""What people read about a plan: costs, the arena, the roofline, profiles."""
