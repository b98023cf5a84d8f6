"""The foundation of every step: progress, GPU leases, users' modules, and the check before the
first job.
"""
