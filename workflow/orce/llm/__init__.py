"""Language models: loading, adapters, chat templates, token tries, the KV cache, and the engines
that generate.
"""
