"""What several tasks share: choices, generated questions, publishers' files, the overlap of train and test."""
