"""The configuration: validation, the settings of each step, the layout of tables and figures."""
