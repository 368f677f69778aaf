"""What other tools read and write: a Chrome trace of a training step goes out."""
