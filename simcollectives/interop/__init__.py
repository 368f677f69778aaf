"""Other tools' files: what they describe, read into this project's own terms, and a step written in theirs."""
