"""The foundation of every step: atomic files, progress, GPU leases, and the check before the first job."""
