"""What kernel models of any kind learn with."""
