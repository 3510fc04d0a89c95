"""What operators fear: servers that die, disks that fill up, clients that are rude; on every engine."""
