"""Who calls, what they may do, and which tenant's calibrations they see."""
