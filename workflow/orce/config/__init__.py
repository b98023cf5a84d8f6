"""The configuration: its check, the part that each step needs, the layout of tables and figures."""
