"""What `tilewise check` reads and decides on the caller's side: files, git, saved predictions, exit codes."""
