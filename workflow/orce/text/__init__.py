"""Text in and out of a model: prompt templates, and parsers for what a model said."""
