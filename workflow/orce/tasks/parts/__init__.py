"""What several tasks share: choices, generated questions, publishers' files, overlap of train and test."""
