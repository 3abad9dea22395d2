"""What a checkpoint holds, read without torch and without running anything that is in it."""
