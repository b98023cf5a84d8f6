"""What every step stands on: files that appear whole, progress, GPU leases, the check before the first job."""
