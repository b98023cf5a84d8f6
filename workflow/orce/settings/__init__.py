"""The settings: the keys of a configuration, and what each stage reads of them."""
