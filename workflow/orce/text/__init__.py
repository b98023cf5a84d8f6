"""Text in and out of a model: prompt templates, and reading what a model said."""
